"""Confirmation of finalists with fresh seeds, and the rules that choose one of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial, TrialState

from search.stages import Rule
from search.trials import best_epochs, by_configuration, configuration_of, epochs_of, mean_of, values_of
from spaces.space import Value

# Means of a few noisy values each, shrunk towards their common mean.

LEAST_SPREAD = 0.05
"""The spread of the groups, in variances of the noise, below which they are not taken to be alike."""


def shrunk_means(groups: Sequence[Sequence[float]], noise: float | None) -> list[float]:
    """The posterior mean of each group's true mean, where the true means are normal too.

    Their variance is that of DerSimonian and Laird 1986 ("Meta-analysis in clinical trials"), moments of the groups'
    means of unequal counts. The highest mean of several is luck in part, and its shrunken one is not.

    Args:
        groups: the values of each, at least one.
        noise: the variance of a value around its group's true mean; without it (None, or 0) the means stay as they are.
    """
    means = [statistics.fmean(values) for values in groups]
    if not noise or len(groups) < 2:
        return means
    precisions = [len(values) / noise for values in groups]
    total = sum(precisions)
    centre = statistics.fmean(means, precisions)
    excess = sum(w * (mean - centre) ** 2 for w, mean in zip(precisions, means, strict=True)) - (len(groups) - 1)
    spread = max(excess / (total - sum(w**2 for w in precisions) / total), LEAST_SPREAD * noise)
    centre = statistics.fmean(means, [1 / (spread + 1 / w) for w in precisions])
    return [centre + spread / (spread + 1 / w) * (mean - centre) for w, mean in zip(precisions, means, strict=True)]


def pooled_variance(groups: Sequence[Sequence[float]], *, estimated: int = 0) -> float | None:
    """The variance within groups, from those of two values or more; None where there are too few.

    ``estimated`` is how many effects common to all groups were taken off the values before, by least squares: each took
    a degree of freedom.
    """
    several = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several) - estimated
    if freedom <= 0:
        return None
    return sum((len(values) - 1) * statistics.variance(values) for values in several) / freedom


# The configurations of a search that may be chosen, and what fresh seeds made of them.


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
            (trial.user_attrs["source_trial"], trial.user_attrs["split"], trial.value)
            for trial in confirmed
            if trial.state == TrialState.COMPLETE and trial.value is not None
        ]
    )
    result = {}
    for number in candidates:
        runs = [trial for trial in confirmed if trial.user_attrs["source_trial"] == number]
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


# How the configurations of a loss are confirmed, and which of them is chosen.
#
# Both rules train so many ``selection.seeds`` a candidate. ``mean`` trains every candidate equally often and takes the
# highest mean of the fresh seeds. ``halving`` trains every candidate once, the better half of them with what is left,
# and
# takes the highest mean of fresh seeds and search, shrunk towards that of all candidates: those of one value more than
# those of several. At equal cost its choice is nearer to the best (``make bench-statistics``, six candidates of three
# seeds: .012, .057, .269 and .724 deviations of quality are lost against .022, .084, .323 and .828, with noise of a
# quarter, a half, one and two such deviations), and its estimate flatters by −.08 to .13 deviations of the noise where
# the mean of the winner does by .14 to .70.
#
# With ``selection.splits`` the trainings of every candidate validate in turn on several splits of the training classes,
# so that those that are compared were trained on the same ones, and a candidate that was only trained on the first is
# compared with what the others would have come to there (:func:`search.selection.choice.split_effects`).

_FINALISTS = (
    "finalists: the configurations of highest value (the mean of their trials), then those of the pruned trials that "
    "got furthest, and trial 0 (the papers' default); "
)
_AMONG = "among those with the fewest failed seeds; ties go to the lower trial number"
RULES: Mapping[Rule, str] = {
    "halving": (
        f"{_FINALISTS}each is trained with a fresh seed, the better half of them with the seeds that are left; chosen: "
        f"the one with the highest mean over fresh seeds and search, shrunk towards that of all finalists, {_AMONG}"
    ),
    "mean": f"{_FINALISTS}chosen: the one with the highest mean over its fresh seeds {_AMONG}",
}


def rule_in_words(rule: Rule, splits: int) -> str:
    """The rule for ``selection.json``."""
    if splits == 1:
        return RULES[rule]
    return (
        f"{RULES[rule]}; fresh seeds validate in turn on {splits} splits of the training classes, of which the first "
        "is the search's, and what a split adds to the values of all is taken off"
    )


def rounds(rule: Rule, candidates: Sequence[Confirmation], seeds: int) -> dict[int, int]:
    """How many seeds each of ``candidates`` is trained with in all, after what is known of its first seed.

    Args:
        rule: of the choice.
        candidates: with at most their first seed.
        seeds: a candidate.
    """
    count = len(candidates)
    if rule == "mean" or count <= 2:
        return {candidate.number: seeds for candidate in candidates}
    better = sorted(candidates, key=_first_rank)[: (count + 1) // 2]
    more = count * (seeds - 1) // len(better)
    return {candidate.number: 1 + more * (candidate in better) for candidate in candidates}


def _first_rank(candidate: Confirmation) -> tuple[int, float, int]:
    known = (*candidate.values, *candidate.searched)
    return candidate.failed, -sum(known) / len(known) if known else float("inf"), candidate.number


def deciding_means(rule: Rule, tried: Sequence[Confirmation]) -> dict[int, float]:
    """What ``rule`` compares, by the numbers of ``tried``, each of which has a fresh seed that finished."""
    if rule == "mean":
        return {candidate.number: candidate.mean for candidate in tried}
    every = shrunk_means([(*candidate.values, *candidate.searched) for candidate in tried], _noise(tried))
    return {candidate.number: estimate for candidate, estimate in zip(tried, every, strict=True)}


def _noise(tried: Sequence[Confirmation]) -> float | None:
    further = {split for candidate in tried for split in candidate.splits} - {0}
    return pooled_variance([candidate.values for candidate in tried], estimated=len(further))


def choose(
    rule: Rule, candidates: Mapping[int, Confirmation]
) -> tuple[Confirmation, dict[int, Confirmation], str] | None:
    """The chosen configuration, all of them with their estimates, and the reason; None where no seed finished."""
    tried = [candidate for candidate in candidates.values() if candidate.values]
    if not tried:
        return None
    fresh = shrunk_means([candidate.values for candidate in tried], _noise(tried))
    value = deciding_means(rule, tried)
    ranked = sorted(tried, key=lambda candidate: (candidate.failed, -value[candidate.number], candidate.number))
    best = ranked[0]
    what = "shrunken mean of fresh seeds and search" if rule == "halving" else "confirmed mean"
    reason = (
        f"trial {best.number} has the highest {what}, {value[best.number]:.4f}, with {len(best.values)} fresh seeds"
    )
    if len(ranked) > 1:
        reason += f"; next is trial {ranked[1].number} with {value[ranked[1].number]:.4f}"
    estimated = {
        candidate.number: replace(candidate, estimate=estimate)
        for candidate, estimate in zip(tried, fresh, strict=True)
    }
    return estimated[best.number], {**candidates, **estimated}, reason


def best_on_splits(chosen: Confirmation, candidates: Sequence[Confirmation]) -> list[bool]:
    """Whether no candidate has a higher mean than ``chosen`` on a split, for each on which it has rivals."""
    rivals = [candidate for candidate in candidates if candidate.number != chosen.number]
    found = []
    for split in sorted(set(chosen.splits)):
        means = [mean for rival in rivals if (mean := _mean_on(rival, split)) is not None]
        own = _mean_on(chosen, split)
        if means and own is not None:
            found.append(own >= max(means))
    return found


def _mean_on(candidate: Confirmation, split: int) -> float | None:
    values = [value for value, on in zip(candidate.values, candidate.splits, strict=True) if on == split]
    return statistics.fmean(values) if values else None


# The audit of a search's pruning: which pruned trials are trained to their end.
