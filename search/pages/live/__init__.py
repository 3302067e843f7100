"""A page that lives while searches run: what each does now, and its report so far."""
