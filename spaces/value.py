"""The value of a hyperparameter."""

Value = bool | int | float | str | None


def value_text(value: Value) -> str:
    """A value as tables show it: four digits of a float."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
