"""Confirmation of finalists with fresh seeds, and the rules that choose one of them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from optuna.trial import FrozenTrial, TrialState

from search.goal import Goal
from search.stages import Rule
from search.trials import best_epochs, by_params, epochs_of, mean_of, values_of
from spaces.space import Value
from trainables.mistakes import counted

# Shrinkage of noisy means towards their common mean.

LEAST_SPREAD = 0.05
"""The lower bound of the variance between groups, in variances of the noise."""


def shrunk_means(groups: Sequence[Sequence[float]], noise: float | None) -> list[float]:
    """Return the posterior mean of each group's true mean, assuming normally distributed true means.

    The variance between groups is the moment estimator of DerSimonian and Laird 1986 ("Meta-analysis in clinical
    trials"), for groups of unequal size. Shrinking removes the optimistic bias of the highest of several means.

    Args:
        groups: the values of each group, at least one.
        noise: the variance of a value around its group's true mean; if None or 0, the means are not shrunk.
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
    """Return the pooled variance within groups of two or more values; None if there are too few values.

    ``estimated`` is the number of effects common to all groups that were subtracted from the values before, by least
    squares: each costs a degree of freedom.
    """
    several = [values for values in groups if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several) - estimated
    if freedom <= 0:
        return None
    return sum((len(values) - 1) * statistics.variance(values) for values in several) / freedom


# Confirmations of a search's finalists with fresh seeds.


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The confirmation of one configuration, identified by the ``number`` of its trial in the search.

    Attributes:
        params: its parameters.
        searched: the values of its trials in the search.
        values: the values of the fresh seeds that finished, without the effects of their splits
            (:func:`split_effects`).
        splits: for each value, the split of the training classes on which it was measured; 0 is the search's own.
        best_epochs: the best epoch of each finished seed, or of each of its folds.
        failed: the number of fresh seeds that failed.
        estimate: the expected value of another fresh seed, the mean of ``values`` shrunk towards those of the other
            candidates; None before the choice.
        measured: the means over the fresh seeds of the metrics of constraints and several objectives; empty if one
            metric decides alone.
    """

    number: int
    params: Mapping[str, Value]
    searched: tuple[float, ...]
    values: tuple[float, ...]
    splits: tuple[int, ...]
    best_epochs: tuple[int, ...]
    failed: int
    estimate: float | None = None
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def mean(self) -> float:
        """The mean over the fresh seeds."""
        return statistics.fmean(self.values)

    @property
    def median_best_epoch(self) -> int | None:
        """The median, rounded up, of the best epochs: how long to train without validation."""
        return math.ceil(statistics.median(self.best_epochs)) if self.best_epochs else None


def finalists(trials: Sequence[FrozenTrial], count: int, goal: Goal | None = None) -> list[FrozenTrial]:
    """Return the first trials of the ``count`` best configurations, and trial 0 if its own is not among them.

    Configurations with complete trials are ranked by their mean value, and with constraints or several objectives as in
    :meth:`search.goal.Goal.ranked`; None stands for a plain goal. If they are fewer than ``count``, the pruned
    trials that trained the most steps follow: a confirmation trains them to the end, and pruning may have been wrong.
    The result is empty without any such trial.
    """
    pruned = sorted((trial for trial in trials if trial.state == TrialState.PRUNED), key=_worst_last)
    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    valued = [(value, group) for group in by_params(compared) if (value := mean_of(group)) is not None]
    best_first = [group for _, group in sorted(valued, key=lambda entry: -entry[0])]
    if goal and not goal.is_plain:
        whole = [[trial for trial in group if trial.state == TrialState.COMPLETE] for group in best_first]
        best_first = [best_first[place] for place in goal.ranked([goal.mean(group) for group in whole])]
    ranked = [next(trial for trial in group if trial.state == TrialState.COMPLETE) for group in best_first]
    best = [group[0] for group in by_params([*ranked, *pruned])][:count]
    if best and trials[0].params not in [trial.params for trial in best]:
        best.append(trials[0])
    return best


def _worst_last(trial: FrozenTrial) -> tuple[int, float, int]:
    return (-max(trial.intermediate_values, default=0), -(trial.value or 0.0), trial.number)


def confirmations(
    searched: Sequence[FrozenTrial],
    confirmed: Sequence[FrozenTrial],
    candidates: Sequence[int],
    objective: str,
    goal: Goal | None = None,
) -> dict[int, Confirmation]:
    """Return the confirmations of the trials ``candidates`` of a search, with what its ``goal`` measures, if any."""
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
            params=dict(searched[number].params),
            searched=values_of([trial for trial in searched if trial.params == searched[number].params]),
            values=tuple(trial.value - effects[trial.user_attrs["split"]] for trial in good if trial.value is not None),
            splits=tuple(trial.user_attrs["split"] for trial in good if trial.value is not None),
            best_epochs=tuple(epoch for trial in good for epoch in best_epochs(epochs_of(trial), objective)),
            failed=len(runs) - len(good),
            measured=goal.mean(good) if goal and not goal.is_plain else {},
        )
    return result


def split_effects(values: Sequence[tuple[int, int, float]]) -> dict[int, float]:
    """Estimate the effect of each class split on the values, relative to the search's own split, 0.

    The model value = candidate + split is fitted by least squares. If every candidate was trained on the same splits,
    the effect is the difference of the splits' means; candidates trained on split 0 only have no influence.

    Args:
        values: the candidate's number, the split and the value of each training.
    """
    candidates = list(dict.fromkeys(candidate for candidate, _, _ in values))
    further = sorted({split for _, split, _ in values} - {0})
    if not further:
        return {0: 0.0}
    import numpy as np

    design = np.zeros((len(values), len(candidates) + len(further)))
    for row, (candidate, split, _) in zip(design, values, strict=True):
        row[candidates.index(candidate)] = 1
        if split:
            row[len(candidates) + further.index(split)] = 1
    solution = np.linalg.lstsq(design, np.array([value for *_, value in values]))[0]
    # Rounded, so that the choice does not depend on the machine's linear algebra library.
    effects = [round(float(effect), 12) for effect in solution[len(candidates) :]]
    return {0: 0.0, **dict(zip(further, effects, strict=True))}


# The rules that allocate fresh seeds to the finalists and choose one of them.
#
# Both rules spend ``selection.seeds`` trainings per candidate on average. "mean" trains every candidate equally often
# and takes the highest mean over fresh seeds. "halving" trains every candidate once and the better half of them with
# the remaining seeds; it takes the highest mean over fresh seeds and search values, shrunk towards that of all
# candidates, which shrinks candidates with fewer values more. At equal cost its choice is better: with six candidates
# of three seeds it loses .012, .057, .269 and .724 standard deviations of quality, "mean" .022, .084, .323 and .828,
# for noise of a quarter, a half, one and two such deviations. Its estimate is biased by -.08 to .13 standard deviations
# of the noise, the mean of the winner by .14 to .70 (``make bench-statistics``).
#
# With ``selection.splits`` the trainings of every candidate validate on several splits of the training classes in turn.
# The effects of the splits are subtracted (:func:`split_effects`), so that candidates trained on different numbers of
# splits are comparable.

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


def rule_in_words(rule: Rule, splits: int, goal: Goal) -> str:
    """Return the sentence about the rule in ``selection.json``."""
    if len(goal.objectives) > 1:
        text = f"finalists: those that this rule prefers in the search, and trial 0; {goal.rule}, {_AMONG}"
    else:
        text = f"{RULES[rule]}; {goal.rule}" if goal.rule else RULES[rule]
    if splits == 1:
        return text
    return (
        f"{text}; fresh seeds validate in turn on {splits} splits of the training classes, of which the first "
        "is the search's, and what a split adds to the values of all is taken off"
    )


def rounds(rule: Rule, candidates: Sequence[Confirmation], seeds: int) -> dict[int, int]:
    """Return the total number of seeds for each of ``candidates``, by its number.

    Args:
        rule: the rule of the choice.
        candidates: the candidates with the results of their first seed.
        seeds: the number of seeds per candidate.
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


def _deciding_means(rule: Rule, tried: Sequence[Confirmation]) -> dict[int, float]:
    """Return the means that ``rule`` compares, by number; each of ``tried`` has a finished fresh seed."""
    if rule == "mean":
        return {candidate.number: candidate.mean for candidate in tried}
    every = shrunk_means([(*candidate.values, *candidate.searched) for candidate in tried], _noise(tried))
    return {candidate.number: estimate for candidate, estimate in zip(tried, every, strict=True)}


def _noise(tried: Sequence[Confirmation]) -> float | None:
    further = {split for candidate in tried for split in candidate.splits} - {0}
    return pooled_variance([candidate.values for candidate in tried], estimated=len(further))


def choose(
    rule: Rule, candidates: Mapping[int, Confirmation], goal: Goal | None = None
) -> tuple[Confirmation, dict[int, Confirmation], str] | None:
    """Return the chosen configuration, all candidates with estimates, and the reason.

    The result is None if no seed finished, or no candidate meets the constraints of the ``goal``.
    """
    tried = [candidate for candidate in candidates.values() if candidate.values]
    allowed = [candidate for candidate in tried if not (goal and goal.unmet(candidate.measured))]
    if not allowed:
        return None
    fresh = shrunk_means([candidate.values for candidate in tried], _noise(tried))
    if goal and len(goal.objectives) > 1:
        best, reason = _from_front(allowed, goal)
    else:
        best, reason = _highest(rule, tried, allowed)
    if len(allowed) < len(tried):
        reason += f"; {len(tried) - len(allowed)} of {counted(len(tried), 'finalist')} do not meet the constraints"
    estimated = {
        candidate.number: replace(candidate, estimate=estimate)
        for candidate, estimate in zip(tried, fresh, strict=True)
    }
    return estimated[best.number], {**candidates, **estimated}, reason


def _highest(rule: Rule, tried: Sequence[Confirmation], allowed: Sequence[Confirmation]) -> tuple[Confirmation, str]:
    value = _deciding_means(rule, tried)
    ranked = sorted(allowed, key=lambda candidate: (candidate.failed, -value[candidate.number], candidate.number))
    best = ranked[0]
    what = "shrunken mean of fresh seeds and search" if rule == "halving" else "confirmed mean"
    seeds = counted(len(best.values), "fresh seed")
    reason = f"trial {best.number} has the highest {what}, {value[best.number]:.4f}, with {seeds}"
    if len(ranked) > 1:
        reason += f"; next is trial {ranked[1].number} with {value[ranked[1].number]:.4f}"
    return best, reason


def _from_front(allowed: Sequence[Confirmation], goal: Goal) -> tuple[Confirmation, str]:
    fewest = min(candidate.failed for candidate in allowed)
    among = [candidate for candidate in allowed if candidate.failed == fewest]
    measured = [candidate.measured for candidate in among]
    best = among[goal.ranked(measured)[0]]
    values = ", ".join(f"{entry.metric} {best.measured[entry.metric]:.4g}" for entry in goal.objectives)
    return best, (
        f"trial {best.number} is one of {len(goal.front(measured))} on the Pareto front of {len(among)} confirmed "
        f"configurations, with {values} and {counted(len(best.values), 'fresh seed')}: {goal.choice_in_front}"
    )


def unmet_sentence(loss: str, candidates: Sequence[Confirmation], goal: Goal) -> str | None:
    """Return a sentence if no confirmed configuration of ``loss`` meets the constraints; None otherwise."""
    tried = [candidate for candidate in candidates if candidate.values]
    if not tried or any(not goal.unmet(candidate.measured) for candidate in tried):
        return None
    closest = tried[goal.ranked([candidate.measured for candidate in tried])[0]]
    lacks = " and ".join(
        f"{constraint.metric} is {closest.measured[constraint.metric]:.4g}, which must be {constraint.relation} "
        f"{constraint.bound:g}"
        for constraint in goal.unmet(closest.measured)
    )
    return f"No confirmed configuration of {loss} meets search.constraints; of trial {closest.number}, {lacks}."


def best_on_splits(chosen: Confirmation, candidates: Sequence[Confirmation]) -> list[bool]:
    """Return for each split with other candidates whether none of them has a higher mean than ``chosen`` there."""
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
