"""The losses and data sets that a search file can name."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from inspect import signature
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator

from search.config.names import is_plain_name, unique
from search.config.validation import ConfigSection, Findings, holds, key_paths, validate
from search.stages import BASELINES
from spaces.space import MODEL, TRAINING, Range, Value
from trainables.common.errors import InvalidInput, Mistake, raise_if_any, suggestion
from trainables.common.part_tables import is_own
from trainables.common.rules import OneOf
from trainables.data import DATASETS, Dataset
from trainables.losses import LOSSES, LossPart, loss_part
from trainables.training.training_config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class HyperparameterDescription:
    """A hyperparameter's default, its range in words, and the source of both."""

    default: Value
    range: str
    source: str


@dataclass(frozen=True, kw_only=True)
class LossDescription:
    """A loss, its paper and equation, and its searchable hyperparameters by name."""

    name: str
    paper: str
    equation: str
    hyperparameters: Mapping[str, HyperparameterDescription]


def described_losses() -> list[LossDescription]:
    from spaces.losses import SPACES  # imports numpy

    return [
        LossDescription(
            name=name,
            paper=LOSSES.rows[name].paper,
            equation=LOSSES.rows[name].equation,
            hyperparameters={
                key: HyperparameterDescription(default=entry.default, range=range_text(entry), source=entry.source)
                for key, entry in SPACES[name].items()
            },
        )
        for name in LOSSES
    ]


def range_text(entry: Range) -> str:
    """Return a hyperparameter's range in words, with the conditions under which it exists."""
    conditions = [f"{name} {' or '.join(map(str, values))}" for name, values in entry.when.items()]
    return f"{entry}, where {', '.join(conditions)}" if conditions else str(entry)


def known_dataset(name: str) -> str:
    """Return ``name``; raise if it is neither a data set of the table nor an import path."""
    raise_if_any(OneOf(DATASETS, own=True).mistakes("name", name))
    return name


def build_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """Return the data set ``name``, of the table or an import path, with ``options``; raise on any that are wrong."""
    keys: tuple[str, ...] = ("name",)
    try:
        dataset = DATASETS[known_dataset(name)]
        if not is_dataclass(dataset):
            raise InvalidInput(f"The data set {name!r} must be a dataclass, whose fields are its options; decorate it.")
        known = signature(dataset).parameters
        keys = (*known, "name")
        mistakes: list[str] = [
            Mistake(key, f": {name} has no such option{suggestion(key, known)}", "remove it")
            for key in options
            if key not in known
        ]
        found = validate(dataset, {key: value for key, value in options.items() if key in known})
        raise_if_any([*mistakes, *found.sentences])
        return found.result()
    except InvalidInput as error:  # sentences without a key depend on ``keys`` alone
        said = map(Mistake.of, error.sentences)
        raise InvalidInput([each if each.key else each.at("", keys) for each in said]) from error
    except Exception as error:
        if not is_own(name) or isinstance(error, ValueError):
            raise
        text = f"The data set {name!r} raises {type(error).__name__}: {error}"
        raise InvalidInput(Mistake("", text, "fix its code", keys)) from error


def _loss(entry: Any) -> LossPart:
    """Return the loss of one entry: a name, an import path, or a mapping of name and part, which imports nothing."""
    if isinstance(entry, LossPart):
        return entry
    if isinstance(entry, Mapping):
        name, path = entry.get("name"), entry.get("part")
        if set(entry) != {"name", "part"} or not isinstance(name, str) or not is_own(path):
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
    "a section of space": (TRAINING, MODEL),
    "a network without training in the results": BASELINES,
}


def _well_named(loss: LossPart) -> LossPart:
    """Return a user-defined loss; raise if its name cannot be used."""
    called, other, problem = loss.name, f"my_{loss.name}", ""
    if not is_plain_name(loss.name):
        called, other, problem = repr(loss.name), "mine", "cannot name a folder"
    for taken in (taken for taken, names in _TAKEN.items() if loss.name in names):
        problem = f"is the name of {taken}"
    if problem:
        fix = f"give it another name, as in {{name: {other}, part: '{loss.path}'}}"
        raise InvalidInput(f"{loss.path} would be called {called}, which {problem}; {fix}.")
    return loss


def _as_written(loss: LossPart) -> str | dict[str, str]:
    return loss.name if loss.path is None else {"name": loss.name, "part": loss.path}


def _unique(losses: tuple[LossPart, ...]) -> tuple[LossPart, ...]:
    unique(tuple(loss.name for loss in losses))
    return losses


Loss = Annotated[LossPart, PlainValidator(_loss), PlainSerializer(_as_written)]
Losses = Annotated[tuple[Loss, ...], Field(min_length=1), AfterValidator(_unique)]


# Settings of the training that differ for a loss.

TrainingByLoss = dict[str, dict[str, Any]]
SHARED = ("epochs", "image_size", "resize_size", "resize_square", "augment")
"""Settings that cannot differ: all losses share the pruner's rungs, the budget in epochs, and the stored images."""


class _Settings(ConfigSection):
    """The section ``training``, validated by itself."""

    training: TrainingConfig


def training_of_loss(training: TrainingConfig, own: Mapping[str, Any]) -> Findings[_Settings]:
    """Validate ``training`` updated with the settings ``own``; the keys of a schedule are merged."""
    content = asdict(training)
    for name, value in own.items():
        under = content.get(name)
        content[name] = {**under, **value} if isinstance(under, dict) and isinstance(value, dict) else value
    return validate(_Settings, {"training": content}, keys=key_paths(TrainingConfig))


def training_mistakes(by_loss: TrainingByLoss, training: TrainingConfig, losses: Sequence[str]) -> Iterator[Mistake]:
    """Yield the mistakes in the settings ``by_loss`` of a search over ``losses``."""
    for loss, own in by_loss.items():
        key = f"training_by_loss.{loss}"
        if loss not in losses:
            text = f": this is not one of the search's losses ({', '.join(losses)}){suggestion(loss, losses)}"
            yield Mistake(key, text, "add it to losses or remove it", (key, "losses"))
            continue
        for name in filter(own.__contains__, SHARED):
            text = f": it must be the same for all losses of a search, and here it is {own[name]!r}"
            yield Mistake(f"{key}.{name}", text, "remove it")
        alone = {name: value for name, value in own.items() if name not in SHARED}
        for mistake in map(Mistake.of, training_of_loss(training, alone).sentences):
            names = [name.removeprefix("training.") for name in (mistake.key, *mistake.keys)]
            # it may depend on settings of the section ``training`` that this loss inherits
            inherited = [name for name in names[1:] if not holds(own, name)]
            keys = (f"{key if name not in inherited else 'training'}.{name}" for name in names[1:])
            yield mistake.at(f"{key}.{names[0]}", sorted(keys, reverse=True))
