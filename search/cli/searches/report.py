"""``holdout report``: searches or a campaign as one page that is read anywhere."""

from pathlib import Path
from typing import Annotated

import typer

from search.cli.options import RUNS, Names, Runs
from search.cli.output import show_line


def report(
    names: Names,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Where to write it, instead of report.html.")
    ] = None,
    runs: Runs = RUNS,
) -> None:
    """Write a search, several of one split, or a campaign as one HTML file with pictures; the test is not opened."""
    from search.pages.report_file import write_report

    show_line(str(write_report(runs, list(dict.fromkeys(names)), output)))
