"""A loss as a search names it: a plain name, and for one's own loss where it is imported from."""

from dataclasses import dataclass

from trainables.losses import LOSSES
from trainables.parts import is_own


@dataclass(frozen=True, kw_only=True)
class LossPart:
    """One loss of a search: ``name`` is shown and names its study; ``path`` is None for a row of ``LOSSES``."""

    name: str
    path: str | None = None

    @property
    def key(self) -> str:
        """What ``LOSSES[key]`` and ``TrialSpec.loss`` take, in any process: the row's name, or the import path."""
        return self.path or self.name


def loss_part(loss: str, name: str | None = None) -> LossPart:
    """The part of the loss with this name or import path.

    One's own is called ``name``. Without one it is imported, and called by its own ``name`` or that of its class.

    Raises:
        Mistakes: the import path leads to no loss.
    """
    if is_own(loss):
        return LossPart(name=name or LOSSES.plain_name(loss), path=loss)
    return LossPart(name=loss)
