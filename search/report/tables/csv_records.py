"""The comparison as CSV, for programs."""

import csv
import io
from collections.abc import Iterator

from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.results.row import Row
from search.report.results.seed_statistics import SeedInterval, SeedStatistics

HEADER = (
    "search", "loss", "role", "trial", "against_search", "against_loss", "against_role", "metric", "stage", "epochs",
    "mean", "std", "ci95_low", "ci95_high", "seeds", "p", "p_holm",
)  # fmt: skip

Record = dict[str, str | int | float | None]
"""A line, by column; what is missing stays empty."""


def as_csv(comparison: Comparison) -> str:
    """One number a line: a row's value at a stage, a pair's difference, or a curve's value after some epochs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(comparison))
    return text.getvalue()


def _records(comparison: Comparison) -> Iterator[Record]:
    for row in comparison.rows:
        yield from _of_row(comparison, row)
    for pair in comparison.pairs:
        yield _of_pair(pair)
    for curve in comparison.anytime:
        name: Record = {"search": curve.search, "loss": curve.loss}
        for point in curve.points:
            if point.value is not None:
                value: Record = {"epochs": point.epochs, "mean": point.value}
                yield {**name, "metric": comparison.objective, "stage": "best so far", **value}


def _of_row(comparison: Comparison, row: Row) -> Iterator[Record]:
    objective = comparison.objective
    name: Record = {"search": row.search, "loss": row.loss, "role": row.role, "trial": row.number}
    if row.search_value is not None:
        yield {**name, "metric": objective, "stage": "search", "mean": row.search_value}
    for stage, values in (("confirmed", row.confirmed), ("final", row.final), ("test_small", row.test_small)):
        if values:
            yield {**name, "metric": objective, "stage": stage, **_statistics(values)}
    if row.test:
        for metric in comparison.test_metrics:
            yield {**name, "metric": metric, "stage": "test", **_statistics(row.test[metric])}


def _statistics(values: SeedStatistics) -> Record:
    ci95 = values.ci95 if isinstance(values, SeedInterval) else None
    low, high = ci95 or (None, None)
    return {"mean": values.mean, "std": values.std, "ci95_low": low, "ci95_high": high, "seeds": values.seeds}


def _of_pair(pair: Pair) -> Record:
    low, high = pair.ci95
    return {
        "search": pair.first.search,
        "loss": pair.first.loss,
        "role": pair.first.role,
        "against_search": pair.second.search,
        "against_loss": pair.second.loss,
        "against_role": pair.second.role,
        "metric": pair.metric,
        "stage": "test",
        "mean": pair.difference,
        "ci95_low": low,
        "ci95_high": high,
        "seeds": pair.seeds,
        "p": pair.p,
        "p_holm": pair.p_holm,
    }
