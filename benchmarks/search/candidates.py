"""Candidates: ways to search that are tried on the tables before any of them becomes a part of the product."""

from collections.abc import Sequence

from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial, TrialState

from benchmarks.search.replay import Way
from search.study.samplers import GaussianProcess, Qmc, Tpe
from search.trials import changed

# What a model sees of trials that have not ended.


def with_running(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return ``trials`` with those that run and have reported as pruned after their last epoch."""
    return [
        changed(trial, state=TrialState.PRUNED)
        if trial.state == TrialState.RUNNING and trial.intermediate_values
        else trial
        for trial in trials
    ]


def extrapolated(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Return ``trials`` with those that run or were pruned as complete, with the value that they would have reached.

    A trial is assumed to gain in each further epoch what the trials that have trained it gained on average.
    """
    gains: dict[int, list[float]] = {}
    for trial in trials:
        values = trial.intermediate_values
        for step, value in values.items():
            if step - 1 in values:
                gains.setdefault(step, []).append(value - values[step - 1])
    means = {step: sum(found) / len(found) for step, found in gains.items()}
    result = []
    for trial in trials:
        values = trial.intermediate_values
        if trial.state in (TrialState.RUNNING, TrialState.PRUNED) and values:
            last = max(values)
            value = values[last] + sum(gain for step, gain in means.items() if step > last)
            trial = changed(trial, state=TrialState.COMPLETE, values=[value])
        result.append(trial)
    return result


class GpEarly(GaussianProcess):
    """The Gaussian process after the default and one random trial."""

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return GPSampler(seed=self.seed_of(number), n_startup_trials=2)


CANDIDATES = {
    "TPE, 2 splits": Way(sampler=Tpe, splits=2),
    "TPE, 3 splits": Way(sampler=Tpe, seeds=3, splits=3),
    "TPE, 2 splits, 5 finalists": Way(sampler=Tpe, splits=2, finalists=5),
    "TPE, 2 splits, mean": Way(sampler=Tpe, splits=2, rule="mean"),
    "TPE, 3 splits, 5 finalists": Way(sampler=Tpe, seeds=3, splits=3, finalists=5),
    "TPE, 5 finalists": Way(sampler=Tpe, finalists=5),
    "TPE, 3 seeds": Way(sampler=Tpe, seeds=3),
    "Sobol, halving, 2 splits": Way(sampler=Qmc, splits=2),
    "Sobol, halving, 2 splits, 5 finalists": Way(sampler=Qmc, splits=2, finalists=5),
    "Sobol, 2 splits": Way(sampler=Qmc, pruner="none", splits=2),
    "GP, nearest rows": Way(sampler=GaussianProcess, pruner="none", restricted=False),
    "TPE, one seed": Way(sampler=Tpe, seeds=1),
    "TPE with running": Way(sampler=Tpe, seen=with_running),
    "TPE extrapolated": Way(sampler=Tpe, seen=extrapolated),
    "TPE extrapolated, one seed": Way(sampler=Tpe, seen=extrapolated, seeds=1),
    "GP extrapolated": Way(sampler=GaussianProcess, seen=extrapolated),
    "GP extrapolated, early": Way(sampler=GpEarly, seen=extrapolated),
    "GP extrapolated, early, one seed": Way(sampler=GpEarly, seen=extrapolated, seeds=1),
}
