"""The live page and its read-only API."""

import hmac
import ipaddress
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.request import urlopen

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from search import __version__
from search.plan.runs import existing_campaign, existing_run, find_campaigns, find_runs
from search.plan.stored import SearchStatus, StoredSearch, status_of
from search.report.document import plotly_script, shared_file
from search.report.live.live_search import (
    Health,
    LiveCampaign,
    LiveSearch,
    Recommended,
    ReportOfCampaign,
    ReportsSoFar,
    SectionSoFar,
    live_campaign,
    live_search,
    recommended,
    written,
)
from search.secrets import expand, health_page
from search.trust import TRACKING, check_address
from trainables.errors import Failure, InvalidInput, printable
from trainables.files import reading

# Health of the services that a search writes to.

PATIENCE_S = 3.0
"""Seconds to wait for MLflow."""


def health(stored: StoredSearch) -> tuple[Health, ...]:
    """Check MLflow, if it is a server."""
    address = stored.config["tracking"]["uri"]
    if not isinstance(address, str) or not address.startswith("http"):
        return ()  # a local file
    try:
        check_address(stored.folder.path, TRACKING, address)
        with urlopen(health_page(expand(address)), timeout=PATIENCE_S):
            problem = None
    except (OSError, ValueError) as error:
        problem = None if getattr(error, "code", 0) in (401, 403) else _first_line(error)  # it answers users
    return (Health(service="MLflow", address=printable(address), problem=problem),)


def _first_line(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return printable(error.sentences[0])
    return printable(f"{type(error).__name__}: {error}").splitlines()[0]


# The page and its API.

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
"""Headers of every response: other sites cannot embed it, and no text in it runs as a script."""


def live_app(
    runs: Path, token: str | None, host: str = "localhost", *, report_of_campaign: ReportOfCampaign | None = None
) -> FastAPI:
    """Create the app for all searches and campaigns in ``runs``.

    Args:
        runs: the runs folder; nothing in it is changed.
        token: the secret that clients send once as ``?token=`` or in an Authorization header; None: only requests to
            this machine's own names are served.
        host: the address that the app listens on.
        report_of_campaign: makes the report of a campaign; None: the app has no reports of campaigns.
    """
    app = FastAPI(title="Holdout", version=__version__, docs_url=None, redoc_url=None)
    reports = ReportsSoFar()
    if token is None:  # against DNS rebinding: a site whose name resolves to this machine must not read the page
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*_OURS, host, f"[{host}]"])
    else:
        app.middleware("http")(_token_check(token))

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
    def searches() -> list[SearchStatus]:
        return [status_of(StoredSearch(folder)) for folder in find_runs(runs)]

    @app.get("/api/recommendations", summary="The recommended model of each search that has chosen")
    def recommendations() -> dict[str, Recommended]:
        found = {folder.name: recommended(folder.summary, written(folder.summary)) for folder in find_runs(runs)}
        return {name: entry for name, entry in found.items() if entry}

    @app.get("/api/searches/{name}", summary="Current state of a search")
    def search(name: str) -> LiveSearch:
        with _opened(runs, name) as stored:
            return live_search(stored)

    @app.get("/api/searches/{name}/report", summary="Sections of its report so far, as HTML")
    def report(name: str) -> tuple[SectionSoFar, ...]:
        with _opened(runs, name) as stored:
            return reports.of(stored)

    @app.get("/api/searches/{name}/health", summary="Health of the services that it writes to")
    def services(name: str) -> tuple[Health, ...]:
        with _opened(runs, name) as stored:
            return health(stored)

    @app.get("/api/campaigns", summary="The campaigns in the runs folder, with their searches")
    def campaigns() -> tuple[LiveCampaign, ...]:
        return tuple(map(live_campaign, find_campaigns(runs)))

    if report_of_campaign is not None:

        @app.get("/api/campaigns/{name}/report", summary="Sections of a campaign's report so far, as HTML")
        def campaign_report(name: str) -> tuple[SectionSoFar, ...]:
            with reading(f"A record of {name}"):
                return reports.of_campaign(existing_campaign(runs, name), report_of_campaign)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/searches/{name}", response_class=HTMLResponse, include_in_schema=False)
    @app.get("/campaigns/{name}", response_class=HTMLResponse, include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(shared_file("live.html"))

    @app.get("/files/{name}", include_in_schema=False)
    def file(name: str) -> Response:
        if name not in _files():
            raise HTTPException(404)
        content, media_type = _files()[name]
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return app


@contextmanager
def _opened(runs: Path, name: str) -> Iterator[StoredSearch]:
    """Open the search ``name``; records of an unexpected form become :class:`InvalidInput`."""
    with reading(f"A record of {name}"):
        yield StoredSearch(existing_run(runs, name))


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


def _token_check(token: str) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    """Return middleware that checks the token; a token in the URL becomes a cookie, and the URL loses it."""

    def is_right(shown: str) -> bool:
        return hmac.compare_digest(shown.encode(errors="replace"), token.encode())

    async def ask(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        try:
            cookie = f"{COOKIE}-{request.url.port}"  # cookies are shared between ports, tokens are not
        except ValueError:
            return PlainTextResponse("The Host header names no host and port.", status_code=400)
        shown = request.query_params.get("token")
        if shown is not None and is_right(shown):
            # A path that begins with // would be another host's address.
            response: Response = RedirectResponse("/" + request.url.path.lstrip("/"))
            response.set_cookie(cookie, token, httponly=True, samesite="strict")
            return response
        header = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not (is_right(request.cookies.get(cookie, "")) or is_right(header)):
            return PlainTextResponse("Open the address with ?token=… printed by `holdout serve`.", status_code=401)
        return await answer(request)

    return ask


# The server.


def serve(
    runs: Path, host: str, port: int, say: Callable[[str], None], *, report_of_campaign: ReportOfCampaign
) -> None:
    """Serve the page of ``runs`` until the process is interrupted; ``say`` receives its address.

    On a loopback address no token is needed; on any other, the address contains a new token.

    Raises:
        InvalidInput: the runs folder does not exist, or the address is not available.
    """
    import uvicorn

    if not runs.is_dir():
        raise InvalidInput(f"There is no runs folder {runs}; set the folder of your searches with --runs.")
    token = None if _is_loopback(host) else secrets.token_urlsafe(32)
    listening = _listening(host, port)
    shown = f"[{host}]" if ":" in host else host
    app = live_app(runs, token, host, report_of_campaign=report_of_campaign)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    # The socket already listens, so a request at once is answered as soon as the server runs.
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
        # Python adds the address to the reason; the codes of name resolution are negative.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
        raise InvalidInput(
            f"Cannot listen on {host}:{port} ({reason}); choose another address with --host and "
            "--port, or any free port with --port 0."
        ) from error
