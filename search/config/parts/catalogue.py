"""What a search file can name, described: the losses with their papers, defaults and ranges."""

from collections.abc import Mapping
from dataclasses import dataclass

from optuna.distributions import BaseDistribution, CategoricalDistribution

from spaces.losses import SPACES
from spaces.space import Parameter
from spaces.value import Value
from trainables.losses import LOSSES


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
