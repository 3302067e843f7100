"""``holdout draw``: the papers' analytic figures as files."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import Json
from search.cli.output import rendered, show, show_line
from trainables.mistakes import Mistakes, suggestion

if TYPE_CHECKING:
    from search.report.tables.text_table import TextTable


def draw(
    figure: Annotated[
        str | None, typer.Argument(metavar="[FIGURE]", help="A figure; without it, all of them are listed.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="The .svg or .png file to write.")] = None,
    as_json: Json = False,
) -> None:
    """Draw an analytic figure of the papers with the losses that train here, and say what it shows."""
    from search.pages.figures.papers.table import FIGURES

    if figure is None:
        if to is not None:
            raise Mistakes(f"--to {to}: name the figure to draw, one of {', '.join(FIGURES)}.")
        listed = [{"name": name, "source": row.source, "title": row.title} for name, row in FIGURES.items()]
        show("" if as_json else rendered([_listed()]), listed, as_json)
        return
    if figure not in FIGURES:
        raise Mistakes(f"A figure must be one of {', '.join(FIGURES)}; it is {figure!r}{suggestion(figure, FIGURES)}.")
    if to is None:
        raise Mistakes(f"{figure} needs a file, as in `holdout draw {figure} --to {figure}.svg`.")
    _refuse(to)

    from search.pages.figures.papers.picture import picture
    from trainables.files.whole import write_whole

    content, shown = picture(figure, to.suffix)
    try:
        write_whole(to, lambda file: file.write(content))
    except OSError as error:
        raise Mistakes(f"--to {to}: it cannot be written ({error.strerror or error}); name another file.") from error
    if as_json:
        table = {"header": shown.table.header, "rows": shown.table.rows, "notes": shown.table.notes}
        show("", {"figure": figure, "file": str(to), "finding": shown.finding, "table": table}, as_json)
        return
    show_line(shown.finding)
    show(rendered([shown.table]), None, as_json)
    show_line(str(to))


def _refuse(to: Path) -> None:
    """What can be known before anything is drawn.

    Raises:
        Mistakes: the file's suffix says no format, or it cannot be written where it should be.
    """
    from search.pages.figures.papers.picture import SUFFIXES

    if to.suffix not in SUFFIXES:
        raise Mistakes(
            f"--to {to}: the file's suffix says its format and must be one of {', '.join(SUFFIXES)}; it is "
            f"{to.suffix!r}."
        )
    if to.is_dir():
        raise Mistakes(f"--to {to}: it is a folder; name a file.")
    if not to.parent.is_dir():
        raise Mistakes(f"--to {to}: there is no folder {to.parent}; make it, or name another place.")
    if not os.access(to.parent, os.W_OK):
        raise Mistakes(f"--to {to}: nothing can be written into {to.parent}; name another place.")


def _listed() -> "TextTable":
    from search.pages.figures.papers.table import FIGURES
    from search.report.tables.text_table import TextTable

    return TextTable(
        title="",
        header=("figure", "paper", "shows"),
        rows=tuple((name, row.source, row.title) for name, row in FIGURES.items()),
        labels=1,
        prose=(2,),
    )
