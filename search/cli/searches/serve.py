"""``holdout serve``: a page that lives while searches run."""

from typing import Annotated

import typer

from search.cli.options import RUNS, Runs
from search.cli.output import show_line


def serve(
    runs: Runs = RUNS,
    host: Annotated[str, typer.Option("--host", help="Where to listen; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")] = 8650,
) -> None:
    """Serve a page of all searches of the runs folder, which follows them while they run; it only reads."""
    from search.pages.live.server import serve as serve_page

    serve_page(runs, host, port, show_line)
