"""What a search does now, read from its storage alone."""

import time
from collections.abc import Iterator, Sequence
from itertools import islice

from optuna.trial import FrozenTrial, TrialState

from search.pages.live.types import Failure, LiveSearch, RunningTrial
from search.plan.progress.status import status_of
from search.plan.progress.work import Pace, planned_work, seconds_left
from search.plan.search import Search
from search.plan.stored import StoredSearch
from search.report.so_far import search_so_far
from search.study.names import Stage, short_study_name
from search.study.records import epochs_of

FAILURES = 20
"""So many of the last failures are told."""


def live_search(stored: StoredSearch) -> LiveSearch:
    """What a search does now.

    Raises:
        Mistakes: it has no studies yet, or its file cannot be read.
    """
    search, status = search_so_far(stored), status_of(stored)
    trials = {(loss, stage): search.trials(loss, stage) for stage in Stage for loss in search.config.loss_names}
    driven = status.driver is not None
    sessions = search.sessions
    return LiveSearch(
        status=status,
        objective=search.config.objective,
        slots=search.slots,
        elapsed_s=time.time() - sessions[-1] if driven and sessions else None,
        left_s=_left(search) if driven else None,
        running=tuple(
            _running(search, loss, stage, trial)
            for (loss, stage), found in trials.items()
            for trial in found
            if driven and trial.state == TrialState.RUNNING
        ),
        failures=tuple(
            islice(
                (
                    failure
                    for (loss, stage), found in reversed(trials.items())
                    for failure in _failures(short_study_name(loss, stage), found)
                ),
                FAILURES,
            )
        ),
    )


def _left(search: Search) -> float | None:
    works = list(planned_work(search, search.config.stages))
    return seconds_left(works, Pace([search]).means(), max(1, search.slots))


def _running(search: Search, loss: str, stage: Stage, trial: FrozenTrial) -> RunningTrial:
    records = epochs_of(trial)
    objective = search.config.objective
    compared = search.study(loss, stage).next_rung(trial.number) if stage is Stage.SEARCH else None
    rung, bar = compared or (None, None)
    memory = [record["memory"]["peak"] / 1e9 for record in records if "memory" in record]
    folds = len(search.plan.split.folds) if stage is not Stage.TEST else 0
    return RunningTrial(
        study=short_study_name(loss, stage),
        number=trial.number,
        epochs=search.config.training.epochs * max(1, folds),
        values=tuple(record["metrics"].get(objective, -record["loss"]) for record in records),
        rung=rung,
        bar=bar,
        seconds=time.time() - records[-1]["end"] if records else None,
        memory_gb=max(memory, default=None),
    )


def _failures(study: str, trials: Sequence[FrozenTrial]) -> Iterator[Failure]:
    """The failed trials of a study, the last one first."""
    for trial in reversed(trials):
        if trial.state == TrialState.FAIL:
            yield Failure(study=study, number=trial.number, reason=trial.user_attrs.get("outcome", "it failed"))
