"""The ``losses`` section: which losses are searched, the built-in ones by name and one's own by import path."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from search.config.names import plain_name, unique
from trainables.losses import LOSSES
from trainables.losses.loss_part import LossPart, loss_part
from trainables.mistakes import Mistakes, suggestion
from trainables.parts import is_own

OWN_KEYS = ("name", "part")
RESERVED = ("training",)
"""What stands beside the losses' names in ``space``."""


def _loss(entry: Any) -> LossPart:
    """One entry: a built-in loss's name, an import path, or ``{name: circle, part: "mylab.losses:CircleLoss"}``."""
    if isinstance(entry, LossPart):
        return entry
    if isinstance(entry, Mapping):
        return _named(entry)
    if not isinstance(entry, str):
        raise Mistakes(f"{entry!r} is no loss; give a name, or the import path of your own.")
    if is_own(entry):
        return _own(loss_part(entry))
    if entry not in LOSSES:
        raise Mistakes(
            f"{entry or repr(entry)} is not known{suggestion(entry, LOSSES)}; there are {', '.join(LOSSES)}, and your "
            "own by their import paths, such as mylab.losses:CircleLoss."
        )
    return loss_part(entry)


def _named(entry: Mapping[str, Any]) -> LossPart:
    """A loss of one's own with a name for it. It is not imported here, so that its search can be read without it."""
    name, path = (entry.get(key) for key in OWN_KEYS)
    if set(entry) != set(OWN_KEYS) or not isinstance(name, str) or not is_own(path):
        raise Mistakes(
            "a loss of your own has the keys name and part, as in {name: circle, part: 'mylab.losses:CircleLoss'}; "
            f"it is {dict(entry)!r}."
        )
    return _own(LossPart(name=name, path=path))


def _own(loss: LossPart) -> LossPart:
    try:
        plain_name(loss.name)
    except ValueError:
        raise Mistakes(
            f"{loss.path} would be called {loss.name!r}, which cannot name a folder; give it another name, as in "
            f"{{name: mine, part: '{loss.path}'}}."
        ) from None
    if loss.name in LOSSES or loss.name in RESERVED:
        taken = "a built-in loss" if loss.name in LOSSES else "a section of space"
        raise Mistakes(
            f"{loss.path} would be called {loss.name}, which is the name of {taken}; give it another one, as in "
            f"{{name: my_{loss.name}, part: '{loss.path}'}}."
        )
    return loss


def _as_written(loss: LossPart) -> str | dict[str, str]:
    return loss.name if loss.path is None else {"name": loss.name, "part": loss.path}


def _unique(losses: tuple[LossPart, ...]) -> tuple[LossPart, ...]:
    unique([loss.name for loss in losses])
    return losses


Loss = Annotated[LossPart, PlainValidator(_loss), PlainSerializer(_as_written)]
Losses = Annotated[tuple[Loss, ...], Field(min_length=1), AfterValidator(_unique)]
