"""What there is to search."""

from search.config.parts.catalogue import LossDescription, described_losses


def losses() -> dict[str, LossDescription]:
    """Every loss by name: its paper and equation, and its hyperparameters with defaults, ranges and their sources."""
    return {description.name: description for description in described_losses()}
