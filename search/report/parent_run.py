"""What the runs in MLflow show that sum up others: a loss's, and the search's."""

from collections.abc import Iterator
from pathlib import Path

from search.plan.runs import RunFolder
from search.report.results.comparison import Comparison
from search.report.results.loss_summary import LossSummary
from search.report.results.pair import Pair
from search.report.results.seed_statistics import SeedStatistics
from search.report.tables.csv_records import as_csv
from search.report.tables.formats import NO_DIFFERENCE, interval, parameters, verdict
from search.report.tables.markdown import as_markdown, rows_as_markdown
from search.report.tables.text_table import NOTHING, TextTable
from search.report.tables.text_tables import text_tables
from search.tracking.described import SummaryRun


def artifact_files(folder: RunFolder) -> list[Path]:
    """The files of a search that its run in MLflow keeps a copy of, those of them that are there."""
    return [path for path in (folder.config, folder.split, folder.report) if path.exists()]


def search_run(comparison: Comparison, folder: RunFolder, description: str) -> SummaryRun:
    """What the run of a search shows, from the ``comparison`` of it alone, above what its ``description`` says."""
    (summary,) = comparison.searches
    entries = summary.losses.values()
    return SummaryRun(
        description=f"{rows_as_markdown(_losses(comparison))}\n\n{description}",
        tags={"holdout.openings": comparison.openings},
        metrics={
            "trials/complete": sum(entry.trials.complete for entry in entries),
            "trials/pruned": sum(entry.trials.pruned for entry in entries),
            "trials/failed": sum(entry.trials.failed for entry in entries),
        },
        texts={"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)},
        files=artifact_files(folder),
    )


def loss_run(comparison: Comparison, loss: str) -> SummaryRun:
    """What the run of ``loss`` shows, from the ``comparison`` of its search alone: the objective after each stage."""
    (summary,) = comparison.searches
    entry = summary.losses[loss]
    pairs = {
        _pair_tag(pair): (
            f"{pair.difference:+.4f} {interval(pair.ci95)}, p {pair.p_holm:.4f} (Holm): "
            f"{verdict(pair) or NO_DIFFERENCE}"
        )
        for pair in comparison.pairs
        if loss in (pair.first.loss, pair.second.loss)
    }
    return SummaryRun(
        description="\n\n".join(_sentences(entry)),
        tags={"holdout.openings": comparison.openings, **pairs},
        metrics=_metrics(comparison, loss),
        params=entry.confirmed.params if entry.confirmed else {},
    )


def _losses(comparison: Comparison) -> TextTable:
    """The objective of each loss after each stage, and of its default at the end: narrow enough for a description."""
    (summary,) = comparison.searches
    objective = comparison.objective
    return TextTable(
        title="",
        header=(objective, "search", "confirmed", "test", "test of default"),
        rows=tuple(
            (
                loss,
                *(_number(value) for value in (_search_value(entry), _mean(entry.confirmed))),
                *(_number(_mean((tested or {}).get(objective))) for tested in (entry.test, entry.default.test)),
            )
            for loss, entry in summary.losses.items()
        ),
        labels=1,
        notes=(),
    )


def _search_value(entry: LossSummary) -> float | None:
    if entry.confirmed:
        return entry.confirmed.search_value
    return entry.best.value if entry.best else None


def _mean(values: SeedStatistics | None) -> float | None:
    return values.mean if values else None


def _std(values: SeedStatistics | None) -> float | None:
    return values.std if values else None


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}"


def _sentences(entry: LossSummary) -> Iterator[str]:
    chosen = entry.confirmed or entry.best
    if chosen:
        yield f"Trial {chosen.number}: {parameters(chosen.params)}."
    for finding in entry.diagnostics:
        yield f"{finding.sentence}."


def _pair_tag(pair: Pair) -> str:
    return ".".join(("holdout", "pair", pair.first.loss, pair.first.role, pair.second.loss, pair.second.role))


def _metrics(comparison: Comparison, loss: str) -> dict[str, float]:
    """By stage, which is before the slash: MLflow makes a group of charts of it."""
    entry, objective = comparison.searches[0].losses[loss], comparison.objective
    default, test, default_test = entry.default, entry.test or {}, entry.default.test or {}
    metrics: dict[str, float | None] = {
        f"search/{objective}": _search_value(entry),
        f"confirmed/{objective}": _mean(entry.confirmed),
        f"confirmed/{objective}_std": _std(entry.confirmed),
        **{f"test/{name}": _mean(test.get(name)) for name in comparison.test_metrics},
        f"test/{objective}_std": _std(test.get(objective)),
        f"default/search_{objective}": default.value,
        f"default/confirmed_{objective}": _mean(default.confirmed),
        f"default/test_{objective}": _mean(default_test.get(objective)),
        "trials/complete": entry.trials.complete,
        "trials/pruned": entry.trials.pruned,
        "trials/failed": entry.trials.failed,
    }
    return {name: value for name, value in metrics.items() if value is not None}
