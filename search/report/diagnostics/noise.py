"""How much a result moves when nothing about the configuration changes: other seeds, and other class splits."""

import statistics
from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from search.config.search_config import SearchConfig
from search.report.results.noise_summary import Detectable, NoiseSummary
from search.report.statistics.detectable import minimum_detectable_difference
from search.study.configurations import configuration_of

COVERS = (
    "It covers initial weights, batches and augmentation of this one configuration on the validation classes; it does "
    "not cover other configurations or losses, the luck of the best of many trials, or the test classes."
)


def noise_summary(config: SearchConfig, trials: Sequence[FrozenTrial]) -> NoiseSummary | None:
    """What the noise stage came to, from the trials of its study; None before one of the search's split is complete."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    values = tuple(trial.values[0] for trial in complete if trial.user_attrs["split"] == 0)
    if not values:
        return None
    seed = trials[0].user_attrs["seed"]
    split_values = tuple(trial.values[0] for trial in complete if trial.user_attrs["seed"] == seed)
    std = _deviation(values)
    return NoiseSummary(
        loss=config.noise_loss,
        params=dict(configuration_of(complete[0])),
        mean=statistics.fmean(values),
        values=values,
        std=std,
        split_values=split_values,
        split_std=_deviation(split_values),
        detectable=_detectable(std, config),
        covers=COVERS,
    )


def _detectable(std: float | None, config: SearchConfig) -> Detectable:
    """Of the table of this search alone: each loss tuned and its default, and the tuned losses beside each other."""
    losses, seeds = len(config.loss_names), config.final.seeds
    pairs = losses + losses * (losses - 1) // 2
    difference = None
    if std is not None:
        difference = minimum_detectable_difference(std, seeds=seeds, rows=2 * losses, pairs=pairs)
    return Detectable(seeds=seeds, pairs=pairs, difference=difference)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None
