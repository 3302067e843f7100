"""What of a search is shown in MLflow, and making the two equal."""

from collections.abc import Mapping
from typing import Any

from search.config.secrets import expand
from search.plan.plan import Plan
from search.plan.search import Search
from search.report.comparison import compare
from search.report.export import as_csv, as_markdown
from search.report.text_tables import interval, text_tables, verdict
from search.study.names import Stage
from search.tracking.tracking import Projection


def make_projection(plan: Plan) -> Projection:
    """MLflow's place for this search."""
    tracking, folder = plan.config.tracking, plan.folder
    return Projection(
        expand(tracking.uri) if tracking.uri else folder.tracking,
        tracking.experiment or plan.config.name,
        # A server keeps its artifacts where it was told to; beside our own database we choose.
        None if tracking.uri else (folder.runs.resolve() / "mlartifacts").as_uri(),
        {"holdout.search": plan.config.name, "holdout.split": plan.split.digest},
    )


def synchronise(search: Search, projection: Projection) -> int:
    """Make MLflow equal to the studies; how many trials it now holds."""
    summary = search.summary()
    comparison = compare([search.plan.folder], [summary])
    count = 0
    for stage in (Stage.NOISE, Stage.SEARCH, Stage.SELECT, Stage.TEST):
        for loss in [search.config.noise_loss] if stage == Stage.NOISE else search.config.losses:
            study = search.study(loss, stage)
            trials = study.trials()
            for trial in trials:
                projection.project(study, trial)
            count += len(trials)
            if trials and all(trial.state.is_finished() for trial in trials):
                projection.close_parent(study, *_parent_facts(comparison, loss, stage))
    return count


def _parent_facts(
    comparison: Mapping[str, Any], loss: str, stage: str
) -> tuple[dict[str, float], dict[str, str], dict[str, Any], dict[str, str]]:
    """What a loss's parent run shows: its statistics at each stage, by role; tags; the chosen parameters; files."""
    tags = {"holdout.loss": loss, "holdout.stage": stage}
    if stage != Stage.SEARCH:
        return {}, tags, {}, {}
    (summary,) = comparison["searches"]
    entry = summary["losses"][loss]
    metrics: dict[str, float | None] = {
        "search_value": entry["best"]["value"] if entry["best"] else None,
        "default_search_value": entry["default"]["value"],
        **{f"trials_{state}": float(count) for state, count in entry["trials"].items()},
    }
    for role, found in (("", entry), ("default_", entry["default"])):
        for stage in ("confirmed", "final"):
            values = found[stage] or {}
            metrics |= {f"{role}{stage}_{key}": values.get(key) for key in ("mean", "std")}
        for name, values in (found["test"] or {}).items():
            low, high = values["ci95"] or (None, None)
            spread = {"_std": values["std"], "_ci95_low": low, "_ci95_high": high}
            metrics |= {f"{role}test_{name}{key}": value for key, value in {"": values["mean"], **spread}.items()}
    tags["holdout.openings"] = comparison["openings"]
    for pair in comparison["pairs"]:
        if loss in (pair["first"][1], pair["second"][1]):
            tags[f"holdout.pair.{'.'.join((*pair['first'][1:], *pair['second'][1:]))}"] = (
                f"{pair['difference']:+.4f} {interval(pair['ci95'])}, p {pair['p_holm']:.4f} (Holm): {verdict(pair)}"
            )
    if entry["diagnostics"]:
        tags["holdout.diagnostics"] = "; ".join(finding["sentence"] for finding in entry["diagnostics"])
    chosen = entry["confirmed"]["params"] if entry["confirmed"] else {}
    files = {"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)}
    return {name: value for name, value in metrics.items() if value is not None}, tags, chosen, files
