"""Ways to search of other libraries, compared where these are installed (``make bench-search PEERS=1``)."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from benchmarks.search.replay import Way
from search.study.sampler import Sampler


class Cqr(Sampler):
    """Syne Tune's conformal quantile regression (Salinas et al., ICML 2023), with its defaults.

    As in its combination with ASHA, a pruned trial counts with the last value that it reported.
    """

    summary = "conformal quantile regression of Syne Tune"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Return a sampler whose model is fitted to ``trials``."""
        searched = {name: parameter.distribution for name, parameter in self.space.searched.items()}
        return _Cqr(searched, self.seed_of(number), trials)

    def problems(self) -> list[str]:
        """Return a sentence for each conditional parameter, which Syne Tune does not know."""
        return self.conditions()


class _Cqr(BaseSampler):
    def __init__(self, searched: dict[str, BaseDistribution], seed: int, trials: Sequence[FrozenTrial]) -> None:
        from syne_tune.optimizer.schedulers.searchers.conformal.conformal_quantile_regression_searcher import (
            ConformalQuantileRegression,
        )

        self._searched = searched
        self._searcher = ConformalQuantileRegression(
            {name: _domain(distribution) for name, distribution in searched.items()},
            random_seed=seed % 2**32,
            points_to_evaluate=[],
        )
        for trial in trials:
            if trial.state.is_finished() and trial.intermediate_values:
                value = trial.intermediate_values[max(trial.intermediate_values)]
                of_trial = {name: trial.params[name] for name in searched}
                self._searcher.on_trial_complete(trial.number, of_trial, -value)  # it minimises

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._searched

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return dict(self._searcher.suggest())

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError(f"{param_name} is a condition's parameter, which the bench leaves out")


def _domain(distribution: BaseDistribution) -> Any:
    """Return the same range in Syne Tune's terms; steps are those of the table's rows."""
    from syne_tune import config_space

    match distribution:
        case FloatDistribution():
            draw = config_space.loguniform if distribution.log else config_space.uniform
        case IntDistribution():
            draw = config_space.lograndint if distribution.log else config_space.randint
        case CategoricalDistribution():
            return config_space.choice(list(distribution.choices))
        case _:
            raise AssertionError(distribution)
    return draw(distribution.low, distribution.high)


PEERS = (
    {
        "Syne Tune's CQR, halving": Way(sampler=Cqr),
        "Syne Tune's CQR": Way(sampler=Cqr, pruner="none"),
    }
    if importlib.util.find_spec("syne_tune")
    else {}
)
