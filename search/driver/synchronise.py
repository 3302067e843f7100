"""Synchronisation of MLflow with the studies."""

import logging
import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from optuna.trial import FrozenTrial

from search.addresses import LOCAL_SERVER, expand, health_page, sqlite_file
from search.config.search_config import settled_entries
from search.records.plan import Plan
from search.records.records import Records
from search.records.runs import RunFolder, campaign_of, mlflow_page
from search.results.comparison import Comparison, comparison_of
from search.results.pairs import NO_DIFFERENCE, difference_with_interval, p_value, verdict
from search.results.rows import COLUMNS, Row, SeedStatistics, interval, mean_of, parameters
from search.results.summary import LossSummary
from search.show.comparison_tables import GAINS, as_csv, baselines_sentences, gains_of, headline_losses, text_tables
from search.stages import Role, Stage, study_name
from search.text_table import as_markdown, rows_as_markdown
from search.tracking import (
    LOSS,
    SEARCH,
    Content,
    Projection,
    is_outage,
    milliseconds,
)
from spaces.space import Value
from trainables.common.errors import Failure, InvalidInput, listed, without_password
from trainables.common.files import read_json, write_json
from trainables.inference.model_files import CARD, DESCRIPTION, is_of_trainable

logger = logging.getLogger(__name__)


def make_projection(plan: Plan) -> Projection:
    """Return the search's projection to MLflow."""
    config = plan.config
    losses = ", ".join(config.loss_names)
    network = "" if config.trainable else f", with {config.model.backbone}"
    uri = expand(config.tracking.uri) if config.tracking.uri else plan.folder.tracking
    campaign = campaign_of(plan.folder.runs, config.name)
    return Projection(
        uri=uri,
        experiment=config.tracking.experiment or config.name,
        # A tracking server has its own artifact location; a local database gets one beside it, not the current folder.
        artifacts=(database.resolve().parent / "mlartifacts").as_uri() if (database := sqlite_file(uri)) else None,
        name=config.name,
        id=plan.folder.own_id(),
        description=f"Hyperparameters of {losses} on {config.dataset.name}{network}, by {config.objective} on the "
        "validation classes. One child run per loss, with one child run per trial.",
        objective=config.objective,
        settings=settled_entries(config),
        settings_of={loss: settled_entries(config.of_loss(loss)) for loss in config.loss_names},
        searched={loss: tuple(plan.spaces[loss].default) for loss in config.loss_names},
        split=plan.split.digest,
        campaign=campaign.name if campaign else "",
        campaign_id=RunFolder(campaign.runs, campaign.name).own_id() if campaign else "",
    )


def synchronise(search: Records, projection: Projection) -> int:
    """Write to MLflow everything in the studies that it lacks; return the number of trials it now holds.

    Raises:
        Failure: MLflow refuses some runs; all others are written.
    """
    comparison = comparison_of(search)
    refused: dict[str, Exception] = {}
    everything: list[FrozenTrial] = []
    for loss in search.config.loss_names:
        of_loss: list[FrozenTrial] = []
        for stage in Stage:
            trials, study = search.trials(loss, stage), study_name(search.name, loss, stage)
            of_loss += trials
            for trial in trials:
                with _noted(refused, f"trial {trial.number} of {study}"):
                    projection.project(study, trial)
        if of_loss:
            with _noted(refused, f"the run of {loss}"):
                projection.sum_up(loss, loss_run(comparison, loss), *_span(of_loss))
        everything += of_loss
    for name in comparison.searches[0].baselines if everything else ():
        with _noted(refused, f"the run of {name}"):
            start, end = _span(everything)
            projection.sum_up(name, baseline_run(comparison, name), start, end and start)
    if everything:
        with _noted(refused, "the run of the search"):
            run = search_run(comparison, search.folder, projection.description)
            projection.sum_up("", run, *_span(everything))
    with _noted(refused, "the models"):
        _log_models(search, projection)
    where = {"uri": search.config.tracking.uri, "experiment": projection.experiment_id}
    with suppress(OSError):  # only for the link to the page
        write_json(search.folder.experiment, where)
    if refused:
        raise Failure(
            f"MLflow lacks {listed([*refused])} of {search.name}, which it refuses "
            f"({_reason(next(iter(refused.values())))}); everything else is written."
        )
    return len(everything)


@contextmanager
def _noted(refused: dict[str, Exception], what: str) -> Iterator[None]:
    """Note an error of this one write, so that the others follow; an outage concerns them all."""
    try:
        yield
    except Exception as error:
        if is_outage(error):
            raise
        refused[what] = error


def _reason(error: Exception) -> str:
    return textwrap.shorten(f"{type(error).__name__}: {without_password(str(error))}", 200)


def register(search: Records, projection: Projection, name: str) -> dict[str, Any]:
    """Register the chosen models of a search, which MLflow holds, under ``name``; the recommended one is the champion.

    Return the ``name``, the ``versions`` of each row's model, and the ``best`` row, whose model is the champion.

    Raises:
        InvalidInput: a model is missing, or another registered model has this name.
        Failure: MLflow cannot be written.
    """
    if path := search.config.trainable:
        raise InvalidInput(
            f"The models of {search.name} were not registered because MLflow cannot serve those of {path}, a "
            "training of your own; `holdout.load` reads them if it has a predictor."
        )
    with mlflow_errors():
        models, comparison = _log_models(search, projection), comparison_of(search)
        (summary,), recommended = comparison.searches, comparison.searches[0].recommended
        if recommended is None:
            raise InvalidInput(f"Nothing is chosen in {search.name} yet; resume it by `holdout run` with its file.")
        chosen = [recommended.loss, *(loss for loss, entry in summary.losses.items() if entry.chosen)]
        if missing := dict.fromkeys(loss for loss in chosen if loss not in models):
            raise InvalidInput(
                f"The models of {search.name} were not registered because that of {', '.join(missing)} is missing; "
                "`holdout run` with the search's file trains and writes it."
            )
        description = (
            f"The chosen models of the search {search.name}, one version per loss. The recommended one, chosen "
            f"on the training classes, has the alias `champion`. {comparison.answers[0].recommended}"
        )
        versions = projection.register(name, description, recommended.loss, models)
        return {"name": name, "versions": versions, "best": recommended.loss}


@contextmanager
def mlflow_errors() -> Iterator[None]:
    """Convert any error raised by MLflow, its database or its server to a :class:`Failure`."""
    try:
        yield
    except (InvalidInput, Failure):
        raise
    except Exception as error:
        refused = getattr(error, "get_http_status_code", lambda: 500)() < 500  # MLflow's own: it does respond
        once = "what it refuses is corrected" if refused else "it responds, or has a new database"
        raise Failure(f"MLflow cannot be written ({_reason(error)}); repeat the command once {once}.") from error


def _log_models(search: Records, projection: Projection) -> dict[str, tuple[str, Content]]:
    """Log the chosen models in the search's folder that MLflow can load; return each one's id and description."""
    logged = {}
    (summary,) = comparison_of(search).searches
    for loss in (*summary.losses, *summary.baselines):
        file = search.folder.model(loss) / DESCRIPTION
        if file.is_file() and not is_of_trainable(read_json(file)):
            model = model_content(search, loss)
            logged[loss] = projection.log_model(loss, model), model
    return logged


def _span(trials: Sequence[FrozenTrial]) -> tuple[int | None, int | None]:
    """Return the start of the first trial and the end of the last one; None before there is one."""
    begun = [trial.datetime_start for trial in trials if trial.datetime_start]
    ended = [trial.datetime_complete for trial in trials if trial.datetime_complete]
    all_ended = len(ended) == len(trials)
    return milliseconds(min(begun, default=None)), milliseconds(max(ended)) if all_ended else None


def try_to_write(write: Callable[[], object]) -> bool:
    """Call ``write`` and return True if it succeeded; log a warning if MLflow is unavailable."""
    try:
        with mlflow_errors():
            write()
    except (InvalidInput, Failure) as problem:
        logger.warning("%s", problem)
        return False
    return True


def behind(name: str) -> str:
    """Return the sentence for a search or campaign ``name`` that MLflow does not show completely."""
    return f"MLflow is behind the studies; `holdout sync {name}` writes the missing runs."


def where_to_look(plans: Sequence[Plan]) -> str:
    """Return a sentence with the address of the results in MLflow, or the command that starts its local server."""
    folder, uri = plans[0].folder, plans[0].config.tracking.uri
    if uri is None and not _answers(LOCAL_SERVER):
        script, command = "mlflow/serve.sh", f"mlflow server --backend-store-uri {shlex.quote(folder.tracking)}"
        if Path(script).is_file():  # in the repository, not in a wheel
            command = f"{script} {shlex.quote(str(folder.runs))}"
        return f"MLflow: `{command}` starts its server."
    page = mlflow_page([plan.folder for plan in plans])
    experiment = plans[0].config.tracking.experiment or plans[0].config.name
    return f"MLflow: {page or f'the experiment {experiment} at {without_password(uri or LOCAL_SERVER)}'}"


def _answers(server: str) -> bool:
    try:
        with urlopen(health_page(server), timeout=1) as answer:
            return bool(answer.read() == b"OK")
    except OSError:
        return False


SHOWN = tuple(column for column in COLUMNS if column.in_mlflow)
"""The columns of the result table in MLflow."""


def search_run(comparison: Comparison, folder: RunFolder, description: str) -> Content:
    """Return the run of a search, from the ``comparison`` of it alone; ``description`` ends the run's description."""
    (summary,) = comparison.searches
    entries = summary.losses.values()
    return Content(
        description="\n\n".join(
            (
                *comparison.changed,
                *(line for answer in comparison.answers for line in answer.lines),
                rows_as_markdown(headline_losses(comparison)),
                *(f"{warning}." for warning in comparison.warnings),
                description,
            )
        ),
        tags={"holdout.openings": comparison.openings},
        metrics={
            f"trials/{state}": sum(getattr(entry.trials, state) for entry in entries)
            for state in ("complete", "pruned", "failed")
        },
        texts={"comparison.md": as_markdown(text_tables(comparison)), "comparison.csv": as_csv(comparison)},
        files=[path for path in (folder.config, folder.split, folder.report) if path.exists()],
    )


def loss_run(comparison: Comparison, loss: str) -> Content:
    """Return the run of ``loss``, from the ``comparison`` of its search alone."""
    (summary,) = comparison.searches
    entry = summary.losses[loss]
    pairs = {
        ".".join(("holdout", "pair", pair.first.loss, pair.first.role, pair.second.loss, pair.second.role)): (
            f"{difference_with_interval(pair)}, p {p_value(pair.p_corrected)} (corrected): "
            f"{verdict(pair) or NO_DIFFERENCE}"
        )
        for pair in comparison.pairs
        if loss in (pair.first.loss, pair.second.loss)
    }
    return Content(
        description="\n\n".join(_sentences(entry)),
        tags={"holdout.openings": comparison.openings, **pairs, **_shown(comparison, entry.tuned)},
        metrics=_metrics(comparison, entry),
        params=_chosen_params(entry),
    )


def baseline_run(comparison: Comparison, name: str) -> Content:
    """Return the run of a network without training, from the ``comparison`` of its search alone."""
    (row,) = [row for row in comparison.rows if row.role is Role.BASELINE and row.loss == name]
    return Content(
        description="\n\n".join(f"{sentence}." for sentence in baselines_sentences(comparison)),
        tags={"holdout.openings": comparison.openings, **_shown(comparison, row)},
        metrics=_row_metrics(comparison, row),
    )


def _shown(comparison: Comparison, row: Row) -> dict[str, str]:
    """Return the tags that the results view shows: the recommendation, the test value, and differences in points."""
    (summary,) = comparison.searches
    objective = comparison.objective
    shown = {"recommended": "yes"} if summary.recommended and summary.recommended.loss == row.loss else {}
    if row.confirmed:
        shown[f"confirmed {objective}"] = _score(row.confirmed)
    if tested := (row.test or {}).get(objective):
        shown[f"test {objective}"] = _score(tested)
    gains = {name: gains_of(comparison, role) for name, role in GAINS.items()}
    return shown | {name: of_rows[row.key] for name, of_rows in gains.items() if row.key in of_rows}


def _sentences(entry: LossSummary) -> Iterator[str]:
    if entry.tuned.params is not None:
        name = f"Trial {entry.tuned.number}" if entry.tuned.number else "The default"
        yield f"{name}: {parameters(entry.tuned.params)}."
    for finding in entry.diagnostics:
        yield f"{finding.sentence}."


def _metrics(comparison: Comparison, entry: LossSummary) -> dict[str, float]:
    """Return the metrics by stage; MLflow groups its charts by the part before the slash."""
    objective, found = comparison.objective, _row_metrics(comparison, entry.tuned)
    for column in SHOWN:
        name = column.key if column.metrics == "none" else f"{column.key}_{objective}"
        if (value := mean_of(column.entry(entry.default, objective))) is not None:
            found[f"default/{name}"] = value
    return found | {f"trials/{state}": count for state, count in entry.trials}


def _row_metrics(comparison: Comparison, row: Row) -> dict[str, float]:
    objective = comparison.objective
    found: dict[str, float | None] = {}
    for column in SHOWN:
        for metric in column.metric_names(objective, comparison.test_metrics):
            value = column.entry(row, metric)
            found[f"{column.key}/{metric}".rstrip("/")] = mean_of(value)
            if metric == objective and isinstance(value, SeedStatistics):
                found[f"{column.key}/{metric}_std"] = value.std
    return {name: value for name, value in found.items() if value is not None}


def _chosen_params(entry: LossSummary) -> dict[str, Value]:
    return dict(entry.chosen.params or {}) if entry.chosen else {}


def model_content(search: Records, loss: str) -> Content:
    """Return the content of the chosen model of ``loss``, which is in its folder."""
    comparison, path = comparison_of(search), search.folder.model(loss)
    (summary,) = comparison.searches
    entry = summary.losses.get(loss)
    scores = (entry.tuned.test if entry else summary.baselines[loss].test) or {}
    test = {name: score for name in comparison.test_metrics if (score := scores.get(name))}
    card = (path / CARD).read_text("utf-8")
    return Content(
        files=[path],
        description=re.sub(r"\A---\n.*?---\n\s*", "", card, flags=re.DOTALL),  # the Hugging Face Hub's metadata
        tags={
            SEARCH: summary.name,
            LOSS: loss,
            "holdout.split": summary.split.digest,
            "holdout.selection": search.frozen_selection.digest,
            "holdout.openings": comparison.openings,
            **{f"holdout.test.{name}": _score(score) for name, score in test.items()},
        },
        metrics={f"test/{name}": score.mean for name, score in test.items()},
        params=_chosen_params(entry) if entry else {},
    )


def _score(score: SeedStatistics) -> str:
    """Return a value on the test as MLflow shows metrics, with three decimals, and its interval."""
    return f"{score.mean:.3f} {interval(score.ci95, digits=3)}".rstrip()
