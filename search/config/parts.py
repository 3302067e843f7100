"""The losses and data sets that a search file can name."""

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from inspect import signature
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from search.config.validation import build
from spaces.losses import SPACES
from spaces.space import Parameter, Value
from trainables.data import DATASETS, Dataset
from trainables.losses import LOSSES
from trainables.mistakes import Mistakes, raise_if_any
from trainables.parts import is_own

# What a search file can name, described: the losses with their papers, defaults and ranges.


@dataclass(frozen=True, kw_only=True)
class HyperparameterDescription:
    """A hyperparameter's default, its range in words, and where both come from."""

    default: Value
    range: str
    source: str


@dataclass(frozen=True, kw_only=True)
class LossDescription:
    """A loss, its paper and equation, and what may be searched of it, by name."""

    name: str
    paper: str
    equation: str
    hyperparameters: Mapping[str, HyperparameterDescription]


def described_losses() -> list[LossDescription]:
    """Every loss."""
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


def range_text(parameter: Parameter) -> str:
    """A parameter's range in words."""
    text = _distribution_text(parameter.distribution)
    conditions = [f"{name} {' or '.join(map(str, values))}" for name, values in parameter.when.items()]
    return f"{text}, where {', '.join(conditions)}" if conditions else text


def _distribution_text(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return "one of " + ", ".join(map(str, distribution.choices))
    low, high, step, log = (getattr(distribution, name) for name in ("low", "high", "step", "log"))
    return f"{low:g} to {high:g}" + (f" by {step:g}" if step and not log else "") + (" (log)" if log else "")


# The data set that a name and options describe.


def known_name(name: str) -> str:
    """``name``, which has to be a row of the table, or an import path."""
    raise_if_any(DATASETS.problems("name", name))
    return name


def build_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set ``name`` of the table, or the one at this import path.

    Raises:
        Mistakes: an unknown name or option, or all that the data set itself refuses.
    """
    dataset = DATASETS[known_name(name)]
    if not is_dataclass(dataset):
        raise Mistakes(f"The data set {name!r} must be a dataclass, whose fields are its options; decorate it.")
    unknown = f"{name} has no such option"
    try:
        return build(dataset, options, known=signature(dataset).parameters, unknown=unknown)
    except ValueError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        raise Mistakes(f"The data set {name!r} raises {type(error).__name__}: {error}; mend it.") from error
