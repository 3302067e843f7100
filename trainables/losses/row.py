"""What is known of a loss without importing it."""

from dataclasses import dataclass

from trainables.parts import PartRow


@dataclass(frozen=True, kw_only=True)
class LossRow(PartRow):
    """A loss's class, its paper and equation, and the learning rate of its proxies (None where it has none)."""

    paper: str
    equation: str
    proxy_lr: float | None = None
