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
    from search.pages.document.report import as_html
    from search.pages.report_of import report_of
    from trainables.files import write_text

    unique = list(dict.fromkeys(names))
    file = output or runs / unique[0] / "report.html"
    write_text(file, as_html(report_of(runs, unique)))
    show_line(str(file))
