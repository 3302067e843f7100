"""Numbers, intervals, verdicts and names of rows as text."""

from collections.abc import Mapping, Sequence

from search.report.results import Comparison, Confirmed, NoiseSummary, Pair, Row, SeedInterval, SeedStatistics
from search.report.statistics import Standing
from search.report.text_table import NOTHING
from search.stages import Role
from spaces.space import Value, value_text

# Numbers, hyperparameters and verdicts as text.

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


# Which rows of a comparison are shown, and what they and their pairs are called.


def loss_label(comparison: Comparison, search: str | None, loss: str) -> str:
    """A loss, with its search where there are several; None is the mean of all searches."""
    return loss if len(comparison.searches) == 1 else f"{search or 'mean'}/{loss}"


def shown_rows(comparison: Comparison) -> list[Row]:
    """The default and the tuned configuration of each loss; one row where they are the same."""
    same = {(row.search, row.loss) for row in comparison.rows if row.role is Role.TUNED and row.number == 0}
    return [row for row in comparison.rows if row.role is Role.TUNED or (row.search, row.loss) not in same]


def trial_name(comparison: Comparison, row: Row) -> str:
    """The number of a row's trial, and which of the two configurations it is."""
    if row.role is Role.TUNED and row.number is None:
        return "none finished"
    (summary,) = [summary for summary in comparison.searches if summary.name == row.search]
    clipped = " clipped" * summary.losses[row.loss].default.clipped
    if row.role is Role.DEFAULT:
        return f"0, default{clipped}"
    return f"default{clipped} is best" if row.number == 0 else f"{row.number}, tuned"


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """The two rows of a pair; a default is only ever paired with its own loss."""
    first, second = pair.first, pair.second
    other = "its default" if second.role is Role.DEFAULT else loss_label(comparison, second.search, second.loss)
    return f"{loss_label(comparison, first.search, first.loss)} − {other}"


# What the noise stage came to, in a sentence or two.


def noise_text(noise: NoiseSummary, objective: str) -> str:
    """``noise`` in words; ``objective`` is the metric that its values are of."""
    if noise.std is None:
        return f"Noise of {noise.loss}: only one training finished, which has no deviation."
    lines = [
        f"Noise of {noise.loss}: {objective} {noise.mean:.4f}, deviation {noise.std:.4f} over "
        f"{len(noise.values)} seeds."
    ]
    if noise.split_std is not None:
        lines.append(f"Over {len(noise.split_values)} class splits with one seed it is {noise.split_std:.4f}.")
    found = noise.detectable
    if found.difference is None:
        lines.append(f"final.seeds = {found.seeds}: one seed cannot tell any difference.")
    else:
        lines.append(
            f"final.seeds = {found.seeds} can tell two rows of {found.pairs} pair{'s' * (found.pairs > 1)} apart that "
            f"differ by {found.difference:.4f} or more, beside the noise of the test classes (5 %, power 80 %)."
        )
    return " ".join([*lines, noise.covers])
