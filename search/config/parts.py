"""The losses and data sets that a search file can name."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from inspect import signature
from typing import Any

from search.config.validation import validate
from spaces.losses import SPACES
from spaces.space import Range, Value
from trainables.data import DATASETS, Dataset
from trainables.errors import InvalidInput, raise_if_any, suggestion
from trainables.losses import LOSSES
from trainables.parts import is_own
from trainables.rules import OneOf

# The built-in losses, described.


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
    """Return the descriptions of all built-in losses."""
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


# Data sets.


def known_dataset(name: str) -> str:
    """Return ``name``; raise if it is neither a data set of the table nor an import path."""
    raise_if_any(OneOf(DATASETS, own=True).mistakes("name", name))
    return name


def build_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """Return the data set ``name`` of the table or at this import path, with ``options``.

    Raises:
        InvalidInput: an unknown name or option, or all that the data set itself rejects.
    """
    dataset = DATASETS[known_dataset(name)]
    if not is_dataclass(dataset):
        raise InvalidInput(f"The data set {name!r} must be a dataclass, whose fields are its options; decorate it.")
    known = signature(dataset).parameters
    mistakes = [
        f"{key}: {name} has no such option{suggestion(key, known)}; remove it." for key in options if key not in known
    ]
    try:
        found = validate(dataset, {key: value for key, value in options.items() if key in known})
        raise_if_any([*mistakes, *found.sentences])
        return found.result()
    except ValueError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        raise InvalidInput(f"The data set {name!r} raises {type(error).__name__}: {error}; fix its code.") from error
