"""The ways to search, and the rules of choice, that ``python -m benchmarks choice`` compares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from search.study.sampler import Fixed, Sampler
from search.study.samplers import Qmc, Random, Tpe
from spaces.space import Choice, Float

# Ways to search.


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to search.

    Attributes:
        sampler: the sampler.
        pruner: the pruner.
        on: what validates: the fixed ``split``; one ``half`` of the training classes, which changes from run to run;
            the two halves as ``folds``; or one of them after the other (``rotating``), where a value is the difference
            from the default on the same half.
        rule: the rule of choice.
    """

    sampler: type[Sampler] = Tpe
    pruner: str = "asha"
    on: Literal["split", "half", "folds", "rotating"] = "split"
    rule: str = "3 finalists on halves, 1 SE, both agree (default)"


class NearDefault(Sampler):
    """Random values around the default: a prior that the papers' values are good."""

    DEVIATION = 0.2
    """The standard deviation, as a share of each range."""

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler of the trial's values."""
        generator = np.random.default_rng(self.seed_of(number))
        values = {}
        for name, parameter in self.space.searched.items():
            if isinstance(parameter, Choice):
                values[name] = parameter.choices[generator.integers(len(parameter.choices))]
            else:
                assert isinstance(parameter, Float)
                share = generator.normal(parameter.position(parameter.default), self.DEVIATION)
                value = parameter.value_at(min(max(share, 0), 1))
                values[name] = round(value) if isinstance(parameter.default, int) else value
        return Fixed(values)


SAME_HALF = "3 finalists on the half that validates, 1 SE"

DEFAULT_WAY = "TPE after a Sobol sequence, halving (default)"
"""The search file's defaults, with which the others are compared."""

HALF_WAY = "half of the classes validates"
"""What ``holdout init`` writes for frozen features, but for its pruner, Hyperband."""

WAYS = {
    DEFAULT_WAY: Way(sampler=Tpe),
    "the same, no pruner": Way(sampler=Tpe, pruner="none"),
    "Sobol sequence, halving": Way(sampler=Qmc),
    "Sobol sequence": Way(sampler=Qmc, pruner="none"),
    "random, halving": Way(sampler=Random),
    "random": Way(sampler=Random, pruner="none"),
    "random near the default": Way(sampler=NearDefault, pruner="none"),
    HALF_WAY: Way(on="half", rule=SAME_HALF),
    "half of the classes, Hyperband": Way(on="half", pruner="hyperband", rule=SAME_HALF),
    "half of the classes, no pruner": Way(on="half", pruner="none", rule=SAME_HALF),
    "two folds": Way(on="folds"),
    "two folds, no pruner": Way(on="folds", pruner="none"),
    "rotating halves": Way(on="rotating"),
}


# Rules of choice.


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of choice; the values are the search file's defaults.

    ``finalists`` None stands for all trials. ``agreed`` asks for a better value than the default's in the search, too.
    ``half`` is the half that validates the search, with two fresh seeds; without a search on a half it is the first
    one. ``predicted`` takes the best value that a Gaussian process predicts, as Ax does, and ``reshuffled`` the best
    value on as many classes as validate, drawn anew for each trial.
    """

    on: Literal["halves", "split", "half", "search", "predicted", "reshuffled"] = "halves"
    finalists: int | None = 3
    better_by: float = 1.0
    agreed: bool = True


PRODUCT = "3 finalists on halves, 1 SE, both agree (default)"

RULES = {
    "best value (Optuna)": Rule(on="search", finalists=1),
    "best predicted value (Ax)": Rule(on="predicted", finalists=None),
    "best on reshuffled classes": Rule(on="reshuffled", finalists=None),
    "3 finalists, 2 fresh seeds on the split": Rule(on="split", better_by=0, agreed=False),
    "the same, 1 SE (`on: split`)": Rule(on="split"),
    "3 finalists on halves": Rule(better_by=0, agreed=False),
    "3 finalists on halves, 1 SE": Rule(agreed=False),
    PRODUCT: Rule(),
    "… without SE": Rule(better_by=0),
    "… 2 SE": Rule(better_by=2),
    "… 1 finalist": Rule(finalists=1),
    "… 5 finalists": Rule(finalists=5),
    SAME_HALF: Rule(on="half"),
    "all unpruned trials on halves": Rule(finalists=None, better_by=0, agreed=False),
    "all unpruned trials on halves, 1 SE": Rule(finalists=None, agreed=False),
}
