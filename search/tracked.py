"""What of a search is shown in MLflow, and making the two equal."""

from collections.abc import Mapping
from typing import Any

from search.plan import CONFIRM, FINAL, NOISE, SEARCH, Plan
from search.search import Search
from search.secrets import expand
from search.tracking import Projection


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
    count = 0
    for stage in (NOISE, SEARCH, CONFIRM, FINAL):
        for loss in [search.config.noise_loss] if stage == NOISE else search.config.losses:
            study = search.study(loss, stage)
            trials = study.trials()
            for trial in trials:
                projection.project(study, trial)
            count += len(trials)
            if trials and all(trial.state.is_finished() for trial in trials):
                projection.close_parent(study, *_parent_facts(summary, loss, stage))
    return count


def _parent_facts(
    summary: Mapping[str, Any], loss: str, stage: str
) -> tuple[dict[str, float], dict[str, str], dict[str, Any]]:
    """What a loss's parent run shows: the values at each stage, by role; tags; the chosen parameters."""
    entry = summary["losses"][loss]
    tags = {"holdout.loss": loss, "holdout.stage": stage}
    if stage != SEARCH:
        return {}, tags, {}
    metrics: dict[str, float | None] = {
        "search_value": entry["best"]["value"] if entry["best"] else None,
        "default_search_value": entry["default"]["value"],
        **{f"trials_{state}": float(count) for state, count in entry["trials"].items()},
    }
    for role, found in (("", entry), ("default_", entry["default"])):
        if found["confirmed"]:
            metrics[f"{role}confirmed_mean"] = found["confirmed"].get("mean")
        for name, values in (found["test"] or {}).items():
            metrics[f"{role}test_{name}"] = values["mean"]
    chosen = entry["confirmed"]["params"] if entry["confirmed"] else {}
    return {name: value for name, value in metrics.items() if value is not None}, tags, chosen
