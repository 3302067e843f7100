"""Synchronisation of MLflow with the studies."""

import logging
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from optuna.trial import FrozenTrial

from search.config.search_config import settled_entries
from search.driver.described import described_models, loss_run, registration, search_run
from search.driver.stages import Outcome
from search.plan.plan import Plan
from search.plan.runs import campaign_of
from search.secrets import expand, without_password
from search.stages import Stage
from search.tracking import (
    DescribedData,
    DescribedModel,
    DescribedSearch,
    Projection,
    Registered,
    SummaryRun,
    milliseconds,
)
from trainables.mistakes import Failure, Mistakes

logger = logging.getLogger(__name__)


def make_projection(plan: Plan) -> Projection:
    """Return the search's projection to MLflow: the server, the experiment and the artifact location."""
    tracking, folder = plan.config.tracking, plan.folder
    return Projection(
        expand(tracking.uri) if tracking.uri else folder.tracking,
        tracking.experiment or plan.config.name,
        # A tracking server has its own artifact location; a local database gets one in the runs folder.
        None if tracking.uri else (folder.runs.resolve() / "mlartifacts").as_uri(),
        described(plan),
    )


def described(plan: Plan) -> DescribedSearch:
    """Return the description of a search that MLflow shows from its first trial on."""
    config, split = plan.config, plan.split
    campaign = campaign_of(plan.folder.runs, config.name)
    return DescribedSearch(
        name=config.name,
        description=_description(plan),
        objective=config.objective,
        settings=settled_entries(config),
        settings_of={loss: settled_entries(config.of_loss(loss)) for loss in config.loss_names},
        searched={loss: tuple(plan.spaces[loss].default) for loss in config.loss_names},
        data=DescribedData(
            name=config.dataset.name,
            root=config.dataset.root,
            digest=split.digest,
            classes={"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        ),
        campaign=campaign.name if campaign else None,
    )


def _description(plan: Plan) -> str:
    config = plan.config
    losses = ", ".join(config.loss_names)
    return (
        f"Hyperparameters of {losses} on {config.dataset.name}, with {config.model.backbone}, by {config.objective} on "
        "the validation classes. One child run per loss, with one child run per trial."
    )


def synchronise(outcome: Outcome, projection: Projection) -> int:
    """Write to MLflow everything in the studies that it lacks; return the number of trials it now holds."""
    search, comparison = outcome.search, outcome.comparison
    everything: list[FrozenTrial] = []
    for loss in search.config.loss_names:
        of_loss: list[FrozenTrial] = []
        for stage in Stage:
            if search.trials(loss, stage):
                study = search.study(loss, stage)
                of_loss += study.trials()
                for trial in study.trials():
                    projection.project(study, trial)
        if of_loss:
            projection.sum_up_loss(loss, loss_run(comparison, loss), *_span(of_loss))
        everything += of_loss
    if everything:
        run = search_run(comparison, search.plan.folder, _description(search.plan))
        projection.sum_up_search(run, *_span(everything))
    models = _log_models(outcome, projection)
    if models and search.config.tracking.register_models:
        _register(outcome, projection, search.name, models)
    return len(everything)


def register(outcome: Outcome, projection: Projection, name: str) -> Registered:
    """Update MLflow and register the chosen models of a search in it under ``name``.

    Raises:
        Mistakes: a model is missing, or another registered model has this name.
        Failure: MLflow cannot be written.
    """
    try:
        synchronise(outcome, projection)
        return _register(outcome, projection, name, _log_models(outcome, projection))
    except Mistakes:
        raise
    except Exception as error:  # any error raised by MLflow
        reason = textwrap.shorten(f"{type(error).__name__}: {without_password(str(error))}", 200)
        raise Failure(f"MLflow cannot be written ({reason}); repeat the command once it responds.") from error


def _log_models(outcome: Outcome, projection: Projection) -> dict[str, tuple[str, DescribedModel]]:
    """Log the chosen models in the search's folder; return, by loss, the MLflow id and the description of each."""
    found = described_models(outcome.comparison, outcome.search.plan.folder)
    return {loss: (projection.log_model(loss, model), model) for loss, model in found.items()}


def _register(
    outcome: Outcome, projection: Projection, name: str, models: Mapping[str, tuple[str, DescribedModel]]
) -> Registered:
    wanted = registration(outcome.comparison, name)
    chosen = [loss for loss, entry in outcome.summary.losses.items() if entry.chosen]
    if missing := [loss for loss in chosen if loss not in models]:
        search = outcome.search.name
        raise Mistakes(
            f"The models of {search} were not registered because that of {', '.join(missing)} is missing; `holdout "
            "run` with the search's file trains and writes it."
        )
    return projection.register(wanted, models)


def _span(trials: Sequence[FrozenTrial]) -> tuple[int | None, int | None]:
    """Return the start of the first trial and the end of the last one; None before there is one."""
    begun = [trial.datetime_start for trial in trials if trial.datetime_start]
    ended = [trial.datetime_complete for trial in trials if trial.datetime_complete]
    all_ended = len(ended) == len(trials)
    return milliseconds(min(begun, default=None)), milliseconds(max(ended)) if all_ended else None


def synchronise_campaign(
    plans: Iterable[Plan],
    name: str,
    *,
    description: str,
    metrics: Mapping[str, float],
    texts: Mapping[str, str],
    files: Sequence[Path],
) -> None:
    """Write the run of the campaign ``name`` to each experiment of its searches (usually one)."""
    run = SummaryRun(description=description, metrics=metrics, texts=texts, files=files)
    experiments = {(plan.config.tracking.uri, plan.config.tracking.experiment): plan for plan in plans}
    for plan in experiments.values():
        make_projection(plan).sum_up_campaign(name, run)


def try_to_write(write: Callable[[], object]) -> bool:
    """Call ``write`` and return True if it succeeded; log a warning if MLflow is unavailable."""
    try:
        write()
    except Mistakes as mistakes:
        logger.warning("%s", mistakes)
        return False
    except Exception as error:  # any error raised by MLflow; the result of the search is kept
        logger.warning("MLflow cannot be written (%s).", type(error).__name__)
        return False
    return True


def behind(name: str) -> str:
    """Return the sentence for a search or campaign ``name`` that MLflow does not show completely."""
    return f"MLflow is behind the studies; `holdout sync {name}` writes the missing runs."


def where_to_look(plan: Plan, projection: Projection) -> str:
    """Return the sentence with the address of the search's page in MLflow."""
    uri = plan.config.tracking.uri
    if uri is None:
        return f"MLflow: `mlflow/serve.sh {plan.folder.runs}`, then http://127.0.0.1:5000/{projection.page}"
    server = without_password(uri) if uri.startswith(("http://", "https://")) else "the page of its server below "
    return f"MLflow: {server.rstrip('/')}/{projection.page}"
