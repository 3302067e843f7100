"""The section of the losses, and the settings of the training that differ for a loss."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from search.config.names import plain_name, unique
from search.config.sections import ConfigSection
from search.config.validation import ValidatedFile, validate
from search.stages import BASELINES
from trainables.errors import InvalidInput, suggestion
from trainables.losses import LOSSES, LossPart, loss_part
from trainables.parts import is_own
from trainables.rules import OneOf
from trainables.training.config import TrainingConfig

# The losses.

LOSS_KEYS = {"name", "part"}
"""The keys of a user-defined loss with a name of its own."""

NOT_LOSSES = ("training", "model")
"""Keys of the section ``space`` that are not losses, and so cannot name one."""


def _loss(entry: Any) -> LossPart:
    """Return the loss of one entry.

    It is the name of a built-in loss, an import path, or ``{name: circle, part: "mylab.losses:CircleLoss"}``. The last
    form imports nothing, so that its search can be read without the user's code.
    """
    if isinstance(entry, LossPart):
        return entry
    if isinstance(entry, Mapping):
        name, path = entry.get("name"), entry.get("part")
        if set(entry) != LOSS_KEYS or not isinstance(name, str) or not is_own(path):
            raise InvalidInput(
                "a loss of your own has the keys name and part, as in {name: circle, part: 'mylab.losses:CircleLoss'}; "
                f"it is {dict(entry)!r}."
            )
        return _well_named(LossPart(name=name, path=path))
    if not isinstance(entry, str):
        raise InvalidInput(f"{entry!r} is not a loss; give a name, or the import path of your own.")
    part = loss_part(OneOf(LOSSES, own=True).checked(entry))
    return _well_named(part) if is_own(entry) else part


_TAKEN: Mapping[str, Collection[str]] = {
    "a built-in loss": LOSSES,
    "a section of space": NOT_LOSSES,
    "a network without training in the results": BASELINES,
}


def _well_named(loss: LossPart) -> LossPart:
    """Return a user-defined loss; raise if its name cannot be used."""
    try:
        plain_name(loss.name)
    except ValueError:
        raise InvalidInput(
            f"{loss.path} would be called {loss.name!r}, which cannot name a folder; give it another name, as in "
            f"{{name: mine, part: '{loss.path}'}}."
        ) from None
    for taken, names in _TAKEN.items():
        if loss.name in names:
            raise InvalidInput(
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


# Settings of the training that differ for a loss.

TrainingByLoss = dict[str, dict[str, Any]]
"""For each loss the training settings that differ from the section ``training``."""

SHARED = ("epochs", "image_size", "resize_size", "resize_square", "augment")
"""Settings that cannot differ: all losses share the pruner's rungs, the budget in epochs, and the stored images."""


class _Settings(ConfigSection):
    """The section ``training``, validated by itself."""

    training: TrainingConfig


def training_of_loss(training: TrainingConfig, own: Mapping[str, Any]) -> TrainingConfig:
    """Return ``training`` updated with the settings ``own``; the keys of a schedule are merged.

    Raises:
        InvalidInput: all mistakes in ``own``.
    """
    return _over(training, own).result().training


def _over(training: TrainingConfig, own: Mapping[str, Any]) -> ValidatedFile[_Settings]:
    content = asdict(training)
    for name, value in own.items():
        under = content.get(name)
        content[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return validate(_Settings, {"training": content})


def training_mistakes(by_loss: TrainingByLoss, training: TrainingConfig, losses: Sequence[str]) -> Iterator[str]:
    """Yield the mistakes in the settings ``by_loss`` of a search over ``losses``."""
    for loss, own in by_loss.items():
        key = f"training_by_loss.{loss}"
        if loss not in losses:
            yield (
                f"{key}: this is not one of the search's losses ({', '.join(losses)}){suggestion(loss, losses)}; add "
                "it to losses or remove it."
            )
            continue
        for name in SHARED:
            if name in own:
                yield (
                    f"{key}.{name}: it must be the same for all losses of a search, and here it is {own[name]!r}; "
                    "remove it."
                )
        alone = {name: value for name, value in own.items() if name not in SHARED}
        for sentence in _over(training, alone).sentences:
            what = sentence.removeprefix("training").replace("did you mean training.", "did you mean ")
            # A mistake may concern a setting of the section ``training`` that this loss inherits.
            others = {field.name for field in fields(TrainingConfig)} - own.keys()
            is_inherited = what.startswith(":") and others & set(re.findall(r"\w+", what))
            yield f"{key}{' over training' if is_inherited else ''}{what}"
