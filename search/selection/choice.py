"""How the configurations of a loss are confirmed, and which of them is chosen.

Both rules train so many ``selection.seeds`` a candidate. ``mean`` trains every candidate equally often and takes the
highest mean of the fresh seeds. ``halving`` trains every candidate once, the better half of them with what is left, and
takes the highest mean of fresh seeds and search, shrunk towards that of all candidates: those of one value more than
those of several. At equal cost its choice is nearer to the best (``make bench-statistics``, six candidates of three
seeds: .012, .057, .269 and .724 deviations of quality are lost against .022, .084, .323 and .828, with noise of a
quarter, a half, one and two such deviations), and its estimate flatters by −.08 to .13 deviations of the noise where
the mean of the winner does by .14 to .70.

With ``selection.splits`` the trainings of every candidate validate in turn on several splits of the training classes,
so that those that are compared were trained on the same ones, and a candidate that was only trained on the first is
compared with what the others would have come to there (:func:`search.selection.confirmation.split_effects`).
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from search.config.sections.selection import Rule
from search.selection.confirmation import Confirmation
from search.selection.shrinkage import pooled_variance, shrunk_means

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
