"""A running search, read from its storage."""

import hashlib
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.plan.search import OpenedSearch, search_so_far
from search.plan.stored import SearchStatus, StoredSearch, status_of
from search.plan.work import Pace, planned_work, seconds_left
from search.report.document import environment, search_report
from search.report.results import Result
from search.stages import Stage, short_study_name
from search.trials import epochs_of

# What the API of the live page answers.


class RunningTrial(Result):
    """A trial that runs: the ``values`` of its epochs so far, and what it has to reach.

    It is compared next after step ``rung``, where ``bar`` is the least value that goes on as of now; None where no
    comparison follows, or nobody came so far. ``seconds`` passed since its last epoch ended, ``memory_gb`` is the most
    that it held on a GPU; None before its first epoch, and without a GPU.
    """

    study: str
    number: int
    epochs: int
    values: tuple[float, ...]
    rung: int | None
    bar: float | None
    seconds: float | None
    memory_gb: float | None


class FailedTrial(Result):
    """A trial that failed, and why."""

    study: str
    number: int
    reason: str


class LiveSearch(Result):
    """What a search does now: its phase, the trials that run, what is left, and what failed.

    ``elapsed_s`` is since its last driver started, ``left_s`` what all its stages still take at the pace so far (None:
    nobody drives it, or no epoch was measured), ``slots`` how many trials run at once at most.
    """

    status: SearchStatus
    objective: str
    slots: int
    elapsed_s: float | None
    left_s: float | None
    running: tuple[RunningTrial, ...]
    failures: tuple[FailedTrial, ...]


class SectionSoFar(Result):
    """A section of a search's report as HTML; ``digest`` changes with it."""

    name: str
    title: str
    digest: str
    html: str


class Health(Result):
    """Whether a service that a search needs answers; ``problem`` is None where it does."""

    service: str
    address: str
    problem: str | None


# What a search does now, read from its storage alone.

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


def _left(search: OpenedSearch) -> float | None:
    works = list(planned_work(search, search.config.stages))
    return seconds_left(works, Pace([search]).means(), max(1, search.slots))


def _running(search: OpenedSearch, loss: str, stage: Stage, trial: FrozenTrial) -> RunningTrial:
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


def _failures(study: str, trials: Sequence[FrozenTrial]) -> Iterator[FailedTrial]:
    """The failed trials of a study, the last one first."""
    for trial in reversed(trials):
        if trial.state == TrialState.FAIL:
            yield FailedTrial(study=study, number=trial.number, reason=trial.user_attrs.get("outcome", "it failed"))


# A search's report so far, made again only where its records changed.


class ReportsSoFar:
    """The sections of each search's report, kept until its records say something else.

    One is made at a time: Matplotlib's settings are its process's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, tuple[SectionSoFar, ...]]] = {}

    def of(self, stored: StoredSearch) -> tuple[SectionSoFar, ...]:
        """The sections of ``stored``.

        Raises:
            Mistakes: it has no studies yet, or its records cannot be read.
        """
        with self._lock:
            state = _state(stored)
            before = self._kept.get(stored.name)
            if before is None or before[0] != state:
                before = self._kept[stored.name] = (state, _sections(stored))
            return before[1]


def _state(stored: StoredSearch) -> Any:
    """What changes with every trial that ended and every file that was written."""
    tallies = [stored.tally(loss, stage) for stage in Stage for loss in stored.losses]
    files = (stored.folder.summary, stored.folder.selection, stored.folder.test)
    return [(dict(tally.states), tally.best) for tally in tallies], list(map(_written, files)), stored.folder.driver()


def _written(file: Path) -> float | None:
    return file.stat().st_mtime if file.exists() else None


def _sections(stored: StoredSearch) -> tuple[SectionSoFar, ...]:
    macro = environment().get_template("section.html").module.section  # type: ignore[attr-defined]
    found = []
    for part in search_report([stored]).sections:
        html = str(macro(part))
        digest = hashlib.sha256(html.encode()).hexdigest()
        found.append(SectionSoFar(name=part.name, title=part.title, digest=digest, html=html))
    return tuple(found)
