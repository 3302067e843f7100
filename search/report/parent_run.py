"""What a loss's parent run in MLflow shows."""

from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.tables.csv_records import as_csv
from search.report.tables.formats import NO_DIFFERENCE, interval, verdict
from search.report.tables.markdown import as_markdown
from search.report.tables.text_tables import text_tables
from search.selection.role import Role
from search.study.names import Stage
from search.tracking.projection import ParentRun


def parent_run(comparison: Comparison, loss: str, stage: Stage) -> ParentRun:
    """What the parent run of ``loss`` in ``stage`` shows, from the comparison of its search alone.

    That of the search stage has the loss's statistics at each stage, by role, and the comparison as files.
    """
    tags = {"holdout.loss": loss, "holdout.stage": stage.trainings}
    if stage is not Stage.SEARCH:
        return ParentRun(tags=tags)
    (summary,) = comparison.searches
    entry = summary.losses[loss]
    tags["holdout.openings"] = comparison.openings
    for pair in comparison.pairs:
        if loss in (pair.first.loss, pair.second.loss):
            found = verdict(pair) or NO_DIFFERENCE
            tags[_pair_tag(pair)] = f"{pair.difference:+.4f} {interval(pair.ci95)}, p {pair.p_holm:.4f} (Holm): {found}"
    if entry.diagnostics:
        tags["holdout.diagnostics"] = "; ".join(finding.sentence for finding in entry.diagnostics)
    return ParentRun(
        metrics=_metrics(comparison, loss),
        tags=tags,
        params=entry.confirmed.params if entry.confirmed else {},
        files={"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)},
    )


def _pair_tag(pair: Pair) -> str:
    return ".".join(("holdout", "pair", pair.first.loss, pair.first.role, pair.second.loss, pair.second.role))


def _metrics(comparison: Comparison, loss: str) -> dict[str, float]:
    entry = comparison.searches[0].losses[loss]
    metrics: dict[str, float | None] = {
        "search_value": entry.best.value if entry.best else None,
        "default_search_value": entry.default.value,
        "trials_complete": entry.trials.complete,
        "trials_pruned": entry.trials.pruned,
        "trials_failed": entry.trials.failed,
    }
    for prefix, role in (("", Role.TUNED), ("default_", Role.DEFAULT)):
        found = entry.of_role(role)
        for stage, values in (("confirmed", found.confirmed), ("final", found.final)):
            metrics[f"{prefix}{stage}_mean"] = values.mean if values else None
            metrics[f"{prefix}{stage}_std"] = values.std if values else None
        metrics[f"{prefix}confirmed_estimate"] = found.confirmed.estimate if found.confirmed else None
        for name, tested in (found.test or {}).items():
            low, high = tested.ci95 or (None, None)
            metrics[f"{prefix}test_{name}"] = tested.mean
            metrics[f"{prefix}test_{name}_std"] = tested.std
            metrics[f"{prefix}test_{name}_ci95_low"] = low
            metrics[f"{prefix}test_{name}_ci95_high"] = high
    return {name: value for name, value in metrics.items() if value is not None}
