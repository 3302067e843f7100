"""The state of a running search, read from its storage."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.plan.runs import CampaignFolder, RunFolder
from search.plan.search import OpenedSearch, search_so_far
from search.plan.stored import SearchStatus, StoredSearch, status_of
from search.plan.work import Pace, planned_work, seconds_left
from search.report.document import ReportPage, environment, search_report
from search.report.results import Summary
from search.report.rows import Result
from search.stages import Role, Stage, short_study_name
from search.trials import epochs_of, value_in
from trainables.errors import InvalidInput
from trainables.metrics.table import metric_name

ReportOfCampaign = Callable[[CampaignFolder], ReportPage]
"""A function of the room above that makes the report of a campaign."""

# Responses of the API.


class LiveTrial(Result):
    """A running trial with the ``values`` of its epochs so far.

    The next comparison is after step ``rung``, at which ``bar`` is currently the lowest value that continues; both are
    None without a further comparison, ``bar`` also before any trial reached the rung. ``seconds`` have passed since the
    last epoch ended (None before the first one); ``memory_gb`` is the peak on a GPU (None without one).
    """

    study: str
    number: int
    epochs: int
    values: tuple[float, ...]
    rung: int | None
    bar: float | None
    seconds: float | None
    memory_gb: float | None


class Recommended(Result):
    """The recommended model of a search in few words, and its mean ``metric`` on the test; None while sealed."""

    model: str
    metric: str
    test: float | None


class FailedTrial(Result):
    study: str
    number: int
    reason: str


class LiveSearch(Result):
    """The state of a search: its phase, running trials, remaining time, and failures.

    ``elapsed_s`` counts from the start of the last driver, ``left_s`` estimates the rest of all stages at the pace so
    far (both None without a driver, ``left_s`` also before the first trial has ended), and ``slots`` is the most trials
    that run at once.
    """

    status: SearchStatus
    objective: str
    slots: int
    elapsed_s: float | None
    left_s: float | None
    running: tuple[LiveTrial, ...]
    failures: tuple[FailedTrial, ...]


class SectionSoFar(Result):
    """A section of a report as HTML; ``digest`` changes with it, and ``loss`` is the only one that it is about."""

    name: str
    title: str
    digest: str
    html: str
    loss: str | None


class LiveCampaign(Result):
    """A campaign with the names of its searches; ``problem`` is None if its file can be read."""

    name: str
    searches: tuple[str, ...]
    problem: str | None = None


class Health(Result):
    """The health of a service that a search needs; ``problem`` is None if it answers."""

    service: str
    address: str
    problem: str | None


# The state, read from the storage alone.

FAILURES = 20
"""Number of most recent failures listed."""


def live_search(stored: StoredSearch) -> LiveSearch:
    """Read the state of a search.

    Raises:
        InvalidInput: the search has no studies yet, or its file cannot be read.
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


@lru_cache(maxsize=1000)
def recommended(path: Path, at: float | None) -> Recommended | None:
    """Return what the summary at ``path``, written ``at`` this time, recommends; None before the choice."""
    if at is None:
        return None
    try:
        summary = Summary.load(path)
    except InvalidInput:  # of another version, or damaged: the page of the search says so
        return None
    if (found := summary.recommended) is None:
        return None
    role = Role.BASELINE if found.number is None else Role.TUNED
    row = next(row for row in summary.rows if (row.loss, row.role) == (found.loss, role))
    metric = metric_name(summary.objective)
    tested = (row.test or {}).get(metric)
    name = f", trial {found.number}" if found.number else ", default" if found.number == 0 else ""
    return Recommended(model=f"{found.loss}{name}", metric=metric, test=tested.mean if tested else None)


def _left(search: OpenedSearch) -> float | None:
    works = list(planned_work(search.plan, search.config.stages, search.trials))
    if not any(work.tally.ended for work in works):
        return None
    return seconds_left(works, Pace([search]).means(), max(1, search.slots))


def _running(search: OpenedSearch, loss: str, stage: Stage, trial: FrozenTrial) -> LiveTrial:
    records = epochs_of(trial)
    objective = search.config.objective
    compared = search.study(loss, stage).next_rung(trial.number) if stage is Stage.SEARCH else None
    rung, bar = compared or (None, None)
    memory = [record["memory"]["peak"] / 1e9 for record in records if "memory" in record]
    folds = len(search.plan.split.folds) if stage is not Stage.TEST else 0
    return LiveTrial(
        study=short_study_name(loss, stage),
        number=trial.number,
        epochs=search.config.training.epochs * max(1, folds),
        values=tuple(value_in(record, objective) for record in records),
        rung=rung,
        bar=bar,
        seconds=time.time() - records[-1]["end"] if records else None,
        memory_gb=max(memory, default=None),
    )


def _failures(study: str, trials: Sequence[FrozenTrial]) -> Iterator[FailedTrial]:
    """Yield the failed trials of a study, newest first."""
    for trial in reversed(trials):
        if trial.state == TrialState.FAIL:
            reason = str(trial.user_attrs.get("outcome", "no reason"))
            yield FailedTrial(study=study, number=trial.number, reason=reason)


# A campaign.


def live_campaign(folder: CampaignFolder) -> LiveCampaign:
    """Read the names of a campaign's searches; one that cannot be read gets a ``problem`` instead of an error."""
    try:
        return LiveCampaign(name=folder.name, searches=tuple(folder.searches()))
    except InvalidInput as error:
        return LiveCampaign(name=folder.name, searches=(), problem=error.sentences[0])


# The report so far.


class ReportsSoFar:
    """A cache of the sections of each search's or campaign's report, valid until its records change.

    A lock lets requests at the same time share one rendering.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[Any, tuple[SectionSoFar, ...]]] = {}

    def of(self, stored: StoredSearch) -> tuple[SectionSoFar, ...]:
        """Return the sections of ``stored``.

        Raises:
            InvalidInput: the search has no studies yet, or its records cannot be read.
        """
        return self._sections(stored.name, lambda: _state(stored), lambda: search_report([stored]))

    def of_campaign(self, folder: CampaignFolder, report: ReportOfCampaign) -> tuple[SectionSoFar, ...]:
        """Return the sections of the campaign in ``folder``.

        Raises:
            InvalidInput: its records cannot be read.
        """
        return self._sections(folder.name, lambda: _state_of_campaign(folder), lambda: report(folder))

    def _sections(
        self, name: str, state: Callable[[], Any], report: Callable[[], ReportPage]
    ) -> tuple[SectionSoFar, ...]:
        with self._lock:
            now = state()
            before = self._kept.get(name)
            if before is None or before[0] != now:
                before = self._kept[name] = (now, _rendered(report()))
            return before[1]


def _state_of_campaign(folder: CampaignFolder) -> Any:
    """Return a value that changes with every finished trial of its searches, and with its result."""
    begun = [RunFolder(folder.runs, name) for name in folder.searches()]
    states = [_state(StoredSearch(search)) for search in begun if search.config.exists()]
    return states, written(folder.result)


def _state(stored: StoredSearch) -> Any:
    """Return a value that changes with every finished trial and every written file."""
    tallies = [stored.tally(loss, stage) for stage in Stage for loss in stored.losses]
    files = (stored.folder.summary, stored.folder.selection, stored.folder.test)
    return [(dict(tally.states), tally.best) for tally in tallies], list(map(written, files)), stored.folder.driver()


def written(file: Path) -> float | None:
    """Return the time at which ``file`` was written last; None if there is none."""
    return file.stat().st_mtime if file.exists() else None


def _rendered(report: ReportPage) -> tuple[SectionSoFar, ...]:
    macro = environment().get_template("section.html").module.section  # type: ignore[attr-defined]
    found = []
    for part in report.sections:
        html = str(macro(part))
        digest = hashlib.sha256(html.encode()).hexdigest()
        found.append(SectionSoFar(name=part.name, title=part.title, digest=digest, html=html, loss=part.loss))
    return tuple(found)
