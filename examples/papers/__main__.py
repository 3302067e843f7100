"""Draw the papers' analytic figures: `python -m examples.papers pnp-3 --to pnp-3.svg`; without a figure, list them."""

import argparse
from pathlib import Path

from examples.papers.figures import FIGURES, SUFFIXES, picture
from holdout.cli.output import Tables, show, show_line
from search.text_table import TextTable
from trainables.common.files import write_whole


def listed() -> TextTable:
    """Return a table of all figures."""
    rows = tuple((name, row.source, row.title) for name, row in FIGURES.items())
    return TextTable(title="", header=("figure", "paper", "shows"), rows=rows, labels=1, prose=(2,))


def main(arguments: list[str] | None = None) -> None:
    """Write one figure and print what it shows."""
    parser = argparse.ArgumentParser(prog="python -m examples.papers", description=__doc__)
    parser.add_argument("figure", nargs="?", choices=FIGURES, help="without it, all figures are listed")
    parser.add_argument("--to", type=Path, metavar="FILE", help=f"the file to write: {' or '.join(SUFFIXES)}")
    given = parser.parse_args(arguments)
    if given.figure is None:
        show(None, as_json=False, for_people=lambda: Tables([listed()]))
        return
    if given.to is None or given.to.suffix not in SUFFIXES:
        parser.error(f"--to must name a {' or '.join(SUFFIXES)} file; it is {given.to}")
    if not given.to.parent.is_dir():
        parser.error(f"--to {given.to} is in a folder that does not exist; create it, or name another file")
    content, shown = picture(given.figure, given.to.suffix)
    try:
        write_whole(given.to, lambda file: file.write(content))
    except OSError as error:
        parser.error(f"--to {given.to} cannot be written ({error.strerror or error})")
    show_line(shown.finding)
    show(None, as_json=False, for_people=lambda: Tables([shown.table]))
    show_line(str(given.to))


if __name__ == "__main__":
    main()
