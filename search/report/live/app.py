"""The live page and its API, which only read."""

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from search import __version__
from search.plan.runs import existing_run, find_runs
from search.plan.stored import SearchStatus, StoredSearch, status_of
from search.report.document import plotly_script, shared_file
from search.report.live.live_search import Health, LiveSearch, ReportsSoFar, SectionSoFar, live_search
from search.secrets import expand, health_page, without_password
from trainables.mistakes import Mistakes

# Whether the services answer that a search writes to.

PATIENCE_S = 3.0


def health(stored: StoredSearch) -> tuple[Health, ...]:
    """The studies' database and MLflow, each with what is wrong with it."""
    return _storage(stored), *_tracking(stored)


def _storage(stored: StoredSearch) -> Health:
    problem = None
    try:
        if stored.storage is None:
            problem = "there is none yet"
        else:
            with stored.storage.connect():
                pass
    except Exception as error:  # whatever a driver of a database raises
        problem = _first_line(error)
    shown = stored.config["search"]["storage"] or "study.db in the search's folder"
    return Health(service="studies", address=without_password(str(shown)), problem=problem)


def _tracking(stored: StoredSearch) -> list[Health]:
    address = stored.config["tracking"]["uri"]
    if not str(address).startswith("http"):
        return []  # a file of the driver's own
    try:
        with urlopen(health_page(expand(str(address))), timeout=PATIENCE_S):
            problem = None
    except (OSError, Mistakes) as error:
        problem = _first_line(error)
    return [Health(service="MLflow", address=without_password(str(address)), problem=problem)]


def _first_line(error: Exception) -> str:
    return without_password(f"{type(error).__name__}: {error}".splitlines()[0])


# The live page and its API; it only reads.

COOKIE = "holdout"
_OURS = ("localhost", "127.0.0.1", "[::1]", "::1")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; connect-src 'self'; img-src data: blob:; style-src 'self' 'unsafe-inline'; "
        "script-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer: nothing of it becomes a part of a page of elsewhere, and names in it are never run."""


def live_app(runs: Path, token: str | None, host: str = "localhost") -> FastAPI:
    """The page of all searches below ``runs``.

    Args:
        runs: the runs folder, of which nothing is changed.
        host: the address that it listens on.
        token: what a reader has to show, as ``?token=`` once or in an Authorization header; None: this machine alone
            is served.
    """
    app = FastAPI(title="Holdout", version=__version__, docs_url=None, redoc_url=None)
    reports = ReportsSoFar()
    if token is None:  # a page of elsewhere must not read ours through a name that it makes point to this machine
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*_OURS, host, f"[{host}]"])
    else:
        app.middleware("http")(_asking_for(token))

    @app.middleware("http")
    async def guarded(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(Mistakes)
    def mistaken(request: Request, error: Mistakes) -> Response:
        return PlainTextResponse(" ".join(error.sentences), status_code=404)

    @app.get("/api/searches", summary="All searches of the runs folder, and how far each is")
    def searches() -> list[SearchStatus]:
        found = []
        for folder in find_runs(runs):
            with closing(StoredSearch(folder)) as stored:
                found.append(status_of(stored))
        return found

    @app.get("/api/searches/{name}", summary="What a search does now")
    def search(name: str) -> LiveSearch:
        with closing(StoredSearch(existing_run(runs, name))) as stored:
            return live_search(stored)

    @app.get("/api/searches/{name}/report", summary="The sections of its report so far, as HTML")
    def report(name: str) -> tuple[SectionSoFar, ...]:
        with closing(StoredSearch(existing_run(runs, name))) as stored:
            return reports.of(stored)

    @app.get("/api/searches/{name}/health", summary="Whether the services answer that it writes to")
    def services(name: str) -> tuple[Health, ...]:
        with closing(StoredSearch(existing_run(runs, name))) as stored:
            return health(stored)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/searches/{name}", response_class=HTMLResponse, include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(shared_file("live.html"))

    @app.get("/files/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        if name not in _files():
            raise HTTPException(404)
        content, media_type = _files()[name]
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return app


@cache
def _files() -> dict[str, tuple[str, str]]:
    script, style = "text/javascript", "text/css"
    return {
        "plotly.js": (plotly_script(), script),
        "page.js": (shared_file("page.js"), script),
        "style.css": (shared_file("style.css"), style),
        "live.js": (shared_file("live.js"), script),
        "live.css": (shared_file("live.css"), style),
    }


def _asking_for(token: str) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """Who shows the token once has a cookie from then on, and an address without the token in it."""

    async def ask(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        cookie = f"{COOKIE}-{request.url.port}"  # a machine's ports share its cookies, and each page has its own token
        shown = request.query_params.get("token")
        if shown is not None and hmac.compare_digest(shown.encode(), token.encode()):
            response: Response = RedirectResponse(request.url.path)
            response.set_cookie(cookie, token, httponly=True, samesite="strict")
            return response
        header = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = request.cookies.get(cookie, header)
        if not hmac.compare_digest(known.encode(), token.encode()):
            return PlainTextResponse("Open the address with ?token=… that `holdout serve` printed.", status_code=401)
        return await answer(request)

    return ask


# The live page on an address.


def serve(runs: Path, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the page of ``runs`` until the process is interrupted; ``say`` gets its address when it answers.

    This machine's own addresses need no token; any other one has a new token in the address that is told.

    Raises:
        Mistakes: the runs folder is not there, or the address cannot be listened on.
    """
    import uvicorn

    if not runs.is_dir():
        raise Mistakes(f"There is no runs folder {runs}; give the one that your searches are in with --runs.")
    token = None if _is_loopback(host) else secrets.token_urlsafe(32)
    listening = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    server = uvicorn.Server(uvicorn.Config(live_app(runs, token, host), log_level="warning"))
    # The socket listens already: who is told the address is answered as soon as the program is there.
    say(f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={token}" if token else ""))
    server.run([listening])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Mistakes(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); give another one with --host and "
            "--port, or --port 0 for any that is free."
        ) from error
