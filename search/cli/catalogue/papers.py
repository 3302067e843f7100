"""``holdout papers``: every table and figure of the papers, with the command that makes it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import Json
from search.cli.output import rendered, show

if TYPE_CHECKING:
    from search.config.papers import Paper
    from search.report.tables.text_table import TextTable

LEGEND = "small: minutes on two cores; full: the paper's setting, DIR the folder of its data set"


def papers(
    name: Annotated[str | None, typer.Argument(metavar="[PAPER]", help="One paper; all of them without it.")] = None,
    as_json: Json = False,
) -> None:
    """Every table and figure of the papers, with the command that makes it, small and in the paper's setting."""
    from search.config.papers import papers as shipped_papers

    found = shipped_papers(name)
    listed = [
        {"paper": paper.paper, "name": key, **item.model_dump()} for key, paper in found.items() for item in paper.items
    ]
    tables = [] if as_json else [table for key, paper in found.items() for table in _tables(key, paper)]
    show("" if as_json else rendered(tables), listed, as_json)


def _tables(name: str, paper: "Paper") -> Iterator["TextTable"]:
    """What has a command, what has none yet, and what needs none."""
    from search.report.tables.text_table import TextTable

    title = f"{name}: {paper.paper}"
    yield TextTable(
        title=title,
        header=("", "shows", "small", "full", "found in"),
        rows=tuple(
            (entry.item, entry.title, _lines(entry.small), _lines(entry.full), entry.shown)
            for entry in paper.items
            if entry.small and entry.full and entry.shown
        ),
        labels=1,
        prose=(1, 4),
        notes=(LEGEND,),
    )
    yield TextTable(
        title=f"{title}: no command yet",
        header=("", "shows", "missing"),
        rows=tuple((entry.item, entry.title, entry.missing) for entry in paper.items if entry.missing),
        labels=1,
        prose=(1, 2),
    )
    yield TextTable(
        title=f"{title}: conceptual, no command makes it",
        header=("", "shows", "why"),
        rows=tuple((entry.item, entry.title, entry.conceptual) for entry in paper.items if entry.conceptual),
        labels=1,
        prose=(1, 2),
    )


def _lines(commands: str) -> str:
    """Several commands, each on a line of its own."""
    return commands.replace(" && ", " &&\n")
