"""The live page: the state of running searches, read from their storage, and its read-only API."""

import hashlib
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from optuna.trial import FrozenTrial, TrialState
from starlette.middleware.trustedhost import TrustedHostMiddleware

from search import __version__
from search.records.records import Records, stored_search
from search.records.runs import find_campaigns, find_runs
from search.records.status import SearchStatus, status_of
from search.records.work import pace_of, planned_work, seconds_left
from search.records.writable import WritableRecords, in_memory
from search.results.rows import Result
from search.show.document import environment, plotly_script, search_report, shared_file
from search.show.drawing import Section
from search.stages import Stage, short_study_name
from search.trials import epochs_of, value_in
from trainables.common.errors import Failure, InvalidInput, printable
from trainables.common.files import reading
from trainables.metrics import unit

# Responses of the API.


class LiveTrial(Result):
    """A running trial with the ``values`` of its epochs so far.

    The next comparison is after step ``rung``, at which ``bar`` is currently the lowest value that continues; both are
    None without a further comparison, ``bar`` also before any trial reached the rung. ``memory_gb`` is the peak on a
    GPU (None without one).
    """

    study: str
    number: int
    epochs: int
    values: tuple[float, ...]
    rung: int | None
    bar: float | None
    memory_gb: float | None


class FailedTrial(Result):
    study: str
    number: int
    reason: str


class ListedSearch(Result):
    """A search in the list of all.

    ``left_s`` estimates the rest of all stages at the pace so far; None without a driver and before the first trial has
    ended.
    """

    status: SearchStatus
    left_s: float | None


class LiveSearch(ListedSearch):
    """The state of a search: its phase, running trials, remaining time, and failures.

    ``elapsed_s`` counts from the start of the last driver (None without one), and ``slots`` is the most trials that run
    at once. Values times ``unit`` are shown.
    """

    objective: str
    unit: int
    slots: int
    elapsed_s: float | None
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


# The state, read from the storage alone.

FAILURES = 20
"""Number of most recent failures listed."""


def live_search(stored: Records) -> LiveSearch:
    search, status = in_memory(stored), status_of(stored)
    trials = {(loss, stage): search.trials(loss, stage) for stage in Stage for loss in search.config.loss_names}
    driven = status.driver is not None
    sessions = search.sessions
    failed = [(key, trial) for key, found in trials.items() for trial in found if trial.state == TrialState.FAIL]
    return LiveSearch(
        status=status,
        objective=search.config.objective,
        unit=unit(search.config.objective),
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
            FailedTrial(
                study=short_study_name(loss, stage),
                number=trial.number,
                reason=str(trial.user_attrs.get("outcome", "no reason")),
            )
            for (loss, stage), trial in reversed(failed[-FAILURES:])
        ),
    )


def listed(stored: Records) -> ListedSearch:
    """Return the state of a search for the list; only one that runs is read whole."""
    status, left = status_of(stored), None
    if status.driver is not None and status.problem is None:
        with suppress(InvalidInput, OSError):  # its own page says so; the list shows the others
            left = _left(in_memory(stored))
    return ListedSearch(status=status, left_s=left)


def _left(search: Records) -> float | None:
    works = list(planned_work(search.plan, search.config.stages, search.trials))
    if not any(work.tally.ended for work in works):
        return None
    return seconds_left(works, pace_of([search]), max(1, search.slots))


def _running(search: WritableRecords, loss: str, stage: Stage, trial: FrozenTrial) -> LiveTrial:
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
        memory_gb=max(memory, default=None),
    )


def _state(search: Records) -> Any:
    """Return a value that changes with every finished trial and every written file."""
    tallies = [search.tally(loss, stage) for stage in Stage for loss in search.losses]
    files = (search.folder.summary, search.folder.selection, search.folder.test)
    written = [file.stat().st_mtime if file.exists() else None for file in files]
    return [(dict(tally.states), tally.best) for tally in tallies], written, search.folder.driver()


def _rendered(part: Section) -> SectionSoFar:
    html = str(environment().get_template("section.html").module.section(part))  # type: ignore[attr-defined]
    digest = hashlib.sha256(html.encode()).hexdigest()
    return SectionSoFar(name=part.name, title=part.title, digest=digest, html=html, loss=part.loss)


# The page and its API.

HOST = "127.0.0.1"
OURS = ("localhost", HOST)
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src data: blob:; style-src 'self' 'unsafe-inline'; "
        "script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every response: other sites cannot embed it, and no text in it runs as a script."""


def live_app(runs: Path) -> FastAPI:
    """Create the app for all searches and campaigns in ``runs``, in which nothing is changed.

    Only requests to this machine's own names are served: a site whose name resolves to it must not read the page.
    """
    app = FastAPI(title="Holdout", version=__version__, docs_url=None, redoc_url=None)
    rendering = threading.Lock()  # requests at the same time share one rendering
    rendered: dict[str, tuple[Any, tuple[SectionSoFar, ...]]] = {}  # of each search, until its records change
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=OURS)

    @app.middleware("http")
    async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(InvalidInput)
    def mistaken(request: Request, error: InvalidInput) -> Response:
        return PlainTextResponse(printable(" ".join(error.sentences)), status_code=404)

    @app.exception_handler(Failure)
    def failed(request: Request, error: Failure) -> Response:
        return PlainTextResponse(printable(str(error)), status_code=503)

    @app.exception_handler(OSError)
    def unreadable(request: Request, error: OSError) -> Response:
        return PlainTextResponse(printable(f"A record cannot be read ({error})."), status_code=503)

    @app.get("/api/searches", summary="Progress of all searches in the runs folder")
    def searches() -> list[ListedSearch]:
        return [listed(Records(folder)) for folder in find_runs(runs)]

    @app.get("/api/searches/{name}", summary="Current state of a search")
    def search(name: str) -> LiveSearch:
        with _opened(runs, name) as records:
            return live_search(records)

    @app.get("/api/searches/{name}/report", summary="Sections of its report so far, as HTML")
    def report(name: str) -> tuple[SectionSoFar, ...]:
        with _opened(runs, name) as records, rendering:
            now, (before, sections) = _state(records), rendered.get(name, (None, ()))
            if before != now:
                _, sections = rendered[name] = now, tuple(map(_rendered, search_report([records]).sections))
            return sections

    @app.get("/api/campaigns", summary="The campaigns in the runs folder, with their searches")
    def campaigns() -> tuple[LiveCampaign, ...]:
        found = []
        for folder in find_campaigns(runs):
            try:
                found.append(LiveCampaign(name=folder.name, searches=tuple(folder.searches())))
            except InvalidInput as error:
                found.append(LiveCampaign(name=folder.name, searches=(), problem=error.sentences[0]))
        return tuple(found)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/searches/{name}", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/campaigns/{name}", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/{name}", response_class=HTMLResponse, include_in_schema=False)  # as a search
    def page() -> HTMLResponse:
        return HTMLResponse(shared_file("live.html"))

    @app.get("/files/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        if name not in FILES:
            raise HTTPException(404)
        content = plotly_script() if name == "plotly.js" else shared_file(name)
        media_type = "text/css" if name.endswith(".css") else "text/javascript"
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return app


@contextmanager
def _opened(runs: Path, name: str) -> Iterator[Records]:
    """Open the search ``name``; records of an unexpected form become :class:`InvalidInput`."""
    with reading(f"A record of {name}"):
        yield stored_search(runs, name)


FILES = ("plotly.js", "page.js", "style.css", "live.js", "live.css")


def serve(runs: Path, port: int, say: Callable[[str], None]) -> None:
    """Serve the page of ``runs`` on this machine until the process is interrupted; ``say`` receives its address.

    Raises:
        InvalidInput: the runs folder does not exist, or the port is not available.
    """
    import uvicorn

    if not runs.is_dir():
        raise InvalidInput(f"There is no runs folder {runs}; set the folder of your searches with --runs.")
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise InvalidInput(
            f"Cannot listen on {HOST}:{port} ({os.strerror(error.errno or 0)}); choose another port with --port, or "
            "any free one with --port 0."
        ) from error
    server = uvicorn.Server(uvicorn.Config(live_app(runs), log_level="warning"))
    # The socket already listens, so a request at once is answered as soon as the server runs.
    say(f"http://{HOST}:{listening.getsockname()[1]}/")
    server.run([listening])
