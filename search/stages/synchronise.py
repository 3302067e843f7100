"""Making MLflow equal to the studies."""

from search.config.secrets import expand
from search.plan.plan import Plan
from search.report.parent_run import parent_run
from search.stages.outcome import Outcome
from search.study.names import Stage
from search.tracking.projection import Projection


def make_projection(plan: Plan) -> Projection:
    """Where MLflow keeps this search."""
    tracking, folder = plan.config.tracking, plan.folder
    return Projection(
        expand(tracking.uri) if tracking.uri else folder.tracking,
        tracking.experiment or plan.config.name,
        # A server keeps its artifacts where it is configured to; beside our own database we choose.
        None if tracking.uri else (folder.runs.resolve() / "mlartifacts").as_uri(),
        {"holdout.search": plan.config.name, "holdout.split": plan.split.digest},
    )


def synchronise(outcome: Outcome, projection: Projection) -> int:
    """Make MLflow equal to the studies; how many trials it now holds."""
    search, count = outcome.search, 0
    for stage in Stage:
        for loss in [search.config.noise_loss] if stage is Stage.NOISE else search.config.loss_names:
            study = search.study(loss, stage)
            trials = study.trials()
            for trial in trials:
                projection.project(study, trial)
            count += len(trials)
            if trials and all(trial.state.is_finished() for trial in trials):
                projection.close_parent(study, parent_run(outcome.comparison, loss, stage))
    return count
