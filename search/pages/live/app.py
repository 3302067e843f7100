"""The live page and its API; it only reads."""

import hmac
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import cache
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from search import __version__
from search.pages.document.report import plotly_script, shared_file
from search.pages.live.health import health
from search.pages.live.live_search import live_search
from search.pages.live.sections import ReportsSoFar
from search.pages.live.types import Health, LiveSearch, SectionSoFar
from search.plan.progress.status import SearchStatus, status_of
from search.plan.runs import existing_run, find_runs
from search.plan.stored import StoredSearch
from trainables.mistakes import Mistakes

COOKIE = "holdout"
_OURS = ("localhost", "127.0.0.1", "[::1]", "::1")
_PAGE = Path(__file__).parent / "page"
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
        return HTMLResponse((_PAGE / "live.html").read_text())

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
        "live.js": ((_PAGE / "live.js").read_text(), script),
        "live.css": ((_PAGE / "live.css").read_text(), style),
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
