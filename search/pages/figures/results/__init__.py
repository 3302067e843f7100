"""What a comparison says, drawn."""
