"""Numbers, hyperparameters and verdicts as text."""

from collections.abc import Mapping, Sequence

from search.report.results.loss_summary import Confirmed
from search.report.results.pair import Pair
from search.report.results.seed_statistics import SeedInterval, SeedStatistics
from search.report.statistics.tournament import Standing
from search.report.tables.text_table import NOTHING
from spaces.value import Value, value_text

NO_DIFFERENCE = "indistinguishable at this budget"
RANKS = ("ranks summed", "mean", "deviation")
RANKS_BESIDE = "in brackets: the ranks of the published numbers"


def spread(entry: SeedStatistics | None) -> str:
    """Mean ± sample deviation, and below it the 95 % interval or the shrunken mean where there is one."""
    if entry is None:
        return NOTHING
    text = f"{entry.mean:.4f}" if entry.std is None else f"{entry.mean:.4f} ± {entry.std:.4f}"
    if isinstance(entry, Confirmed) and entry.estimate is not None:
        return f"{text}\nshrunk {entry.estimate:.4f}"
    return f"{text}\n{interval(entry.ci95)}" if isinstance(entry, SeedInterval) and entry.ci95 else text


def interval(ends: tuple[float, float]) -> str:
    """An interval in words of mathematics."""
    return f"[{ends[0]:.4f}, {ends[1]:.4f}]"


def parameters(params: Mapping[str, Value]) -> str:
    """Hyperparameters in a line."""
    return ", ".join(f"{name}={value_text(value)}" for name, value in params.items())


def ranks_beside(standing: Standing, published: Standing | None) -> tuple[str, ...]:
    """The entries below :data:`RANKS` of a loss, those of the ``published`` numbers in brackets."""
    if published is None:
        return _ranks(standing)
    return tuple(f"{ours} ({theirs})" for ours, theirs in zip(_ranks(standing), _ranks(published), strict=True))


def _ranks(standing: Standing) -> tuple[str, ...]:
    return f"{standing.total:g}", f"{standing.mean:.2f}", NOTHING if standing.std is None else f"{standing.std:.2f}"


def verdict(pair: Pair) -> str:
    """Whether the first of a pair is higher or lower, nothing where that may be chance."""
    if not pair.differ:
        return ""
    return "higher" if pair.difference > 0 else "lower"


def not_different(pairs: Sequence[Pair]) -> list[str]:
    """One sentence on all pairs whose difference may be chance, with their count; none where all differ."""
    same = sum(not pair.differ for pair in pairs)
    if not same:
        return []
    counted = f"{same} of {len(pairs)} pair{'s' * (len(pairs) > 1)}"
    return [f"{counted}, {pairs[0].metric} on the test classes: {NO_DIFFERENCE}"]
