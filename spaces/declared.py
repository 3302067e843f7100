"""The declared space of a loss: a row of ``SPACES``, or what one's own loss says in its attribute ``space``."""

from collections.abc import Mapping

from spaces.losses import SPACES
from spaces.space import Parameter, Space
from trainables.losses import LOSSES
from trainables.losses.loss_part import LossPart
from trainables.mistakes import Mistakes

HOW = """\
space = {"margin": Parameter(distribution=FloatDistribution(0, 1), default=0.25, source="Sun et al. 2020")}"""


def declared_space(loss: LossPart) -> Space:
    """What may be searched of ``loss``; one's own loss is imported for it.

    Raises:
        Mistakes: one's own loss is not there, or does not say what may be searched.
    """
    if loss.path is None:
        return SPACES[loss.name]
    space = getattr(LOSSES[loss.path], "space", None)
    if not isinstance(space, Mapping) or not all(isinstance(row, Parameter) for row in space.values()):
        found = "has none" if space is None else f"it is {space!r:.100}"
        raise Mistakes(
            f"The loss {loss.path!r} must say in a class attribute space what may be searched of it, a "
            f"spaces.space.Parameter by name or an empty mapping, and {found}: write such as `{HOW}`."
        )
    return space
