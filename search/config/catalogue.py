"""What a search file can name, described: the losses with their papers, defaults and ranges."""

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

from spaces.losses import SPACES
from spaces.space import Parameter
from trainables.losses import LOSSES


def described_losses() -> list[dict[str, Any]]:
    """Every loss, as JSON."""
    return [
        {
            "name": name,
            "paper": LOSSES.rows[name].paper,
            "equation": LOSSES.rows[name].equation,
            "hyperparameters": {
                key: {"default": entry.default, "range": range_text(entry), "source": entry.source}
                for key, entry in SPACES[name].items()
            },
        }
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
