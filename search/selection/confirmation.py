"""The configurations of a search that may be chosen, and what fresh seeds made of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from search.study.configurations import by_configuration, configuration_of, mean_of, values_of
from search.study.records import epochs_of
from search.study.trial_value import best_epochs
from spaces.value import Value


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """One configuration's confirmations: ``values`` of the seeds that finished, ``failed`` the number that did not.

    ``splits`` says of each value on which split of the training classes it was measured, from 0, the search's own; what
    a split's classes add to the values of all configurations is taken off (:func:`split_effects`). ``searched`` are the
    values of its trials in the search, and ``best_epochs`` the epochs at which the finished seeds were best, each fold
    of a seed by itself. ``estimate`` is what other fresh seeds are expected to come to: the mean of ``values`` shrunk
    towards those of the other candidates; None before the choice.
    """

    number: int
    params: Mapping[str, Value]
    searched: tuple[float, ...]
    values: tuple[float, ...]
    splits: tuple[int, ...]
    best_epochs: tuple[int, ...]
    failed: int
    estimate: float | None = None

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return statistics.fmean(self.values)

    @property
    def search_value(self) -> float | None:
        """Its value in the search, the mean where it was tried several times."""
        return statistics.fmean(self.searched) if self.searched else None

    @property
    def median_best_epoch(self) -> int | None:
        """How long to train where nothing validates: the median, rounded up, of the seeds' best epochs."""
        return math.ceil(statistics.median(self.best_epochs)) if self.best_epochs else None


def finalists(trials: Sequence[FrozenTrial], count: int) -> list[FrozenTrial]:
    """The first trials of the ``count`` best configurations, and trial 0 where its own is not among them.

    Configurations with complete trials come first, by the mean of these. Where they are fewer than ``count``, those
    of the pruned trials that got furthest follow: a confirmation trains them to the end, and pruning may have been
    wrong. Without any of them there is nothing to confirm, not even the default.
    """
    pruned = sorted((trial for trial in trials if trial.state == TrialState.PRUNED), key=_worst_last)
    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    valued = [(value, group) for group in by_configuration(compared) if (value := mean_of(group)) is not None]
    best_first = [group for _, group in sorted(valued, key=lambda entry: -entry[0])]
    ranked = [next(trial for trial in group if trial.state == TrialState.COMPLETE) for group in best_first]
    best = [group[0] for group in by_configuration([*ranked, *pruned])][:count]
    if best and configuration_of(trials[0]) not in [configuration_of(trial) for trial in best]:
        best.append(trials[0])
    return best


def _worst_last(trial: FrozenTrial) -> tuple[int, float, int]:
    return (-max(trial.intermediate_values, default=0), -(trial.value or 0.0), trial.number)


def confirmations(
    searched: Sequence[FrozenTrial], confirmed: Sequence[FrozenTrial], candidates: Sequence[int], objective: str
) -> dict[int, Confirmation]:
    """The confirmations of the trials ``candidates`` of a search."""
    effects = split_effects(
        [
            (trial.user_attrs["configuration"], trial.user_attrs["split"], trial.value)
            for trial in confirmed
            if trial.state == TrialState.COMPLETE and trial.value is not None
        ]
    )
    result = {}
    for number in candidates:
        runs = [trial for trial in confirmed if trial.user_attrs["configuration"] == number]
        good = [trial for trial in runs if trial.state == TrialState.COMPLETE]
        result[number] = Confirmation(
            number=number,
            params=dict(configuration_of(searched[number])),
            searched=values_of([trial for trial in searched if _same(trial, searched[number])]),
            values=tuple(trial.value - effects[trial.user_attrs["split"]] for trial in good if trial.value is not None),
            splits=tuple(trial.user_attrs["split"] for trial in good if trial.value is not None),
            best_epochs=tuple(epoch for trial in good for epoch in best_epochs(epochs_of(trial), objective)),
            failed=len(runs) - len(good),
        )
    return result


def split_effects(values: Sequence[tuple[int, int, float]]) -> dict[int, float]:
    """What each class split adds to the values of all configurations, beyond what the search's own split, 0, adds.

    By least squares, value = configuration + split. Where every configuration was trained on the same splits, it is the
    difference of the splits' means; where some were trained on the first one alone, they have no say in it.

    Args:
        values: the configuration, the split and the value of each training.
    """
    configurations = list(dict.fromkeys(configuration for configuration, _, _ in values))
    further = sorted({split for _, split, _ in values} - {0})
    if not further:
        return {0: 0.0}
    import numpy as np

    design = np.zeros((len(values), len(configurations) + len(further)))
    for row, (configuration, split, _) in zip(design, values, strict=True):
        row[configurations.index(configuration)] = 1
        if split:
            row[len(configurations) + further.index(split)] = 1
    solution = np.linalg.lstsq(design, np.array([value for *_, value in values]))[0]
    # Rounded, so that another machine's linear algebra comes to the same choice, digit for digit.
    effects = [round(float(effect), 12) for effect in solution[len(configurations) :]]
    return {0: 0.0, **dict(zip(further, effects, strict=True))}


def _same(trial: FrozenTrial, other: FrozenTrial) -> bool:
    return "params" in trial.user_attrs and configuration_of(trial) == configuration_of(other)
