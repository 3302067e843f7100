"""Tables of text, and their output as CSV, Markdown and LaTeX."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath

from trainables.common.errors import InvalidInput, raise_if_any
from trainables.common.files import write_text

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text for terminal, Markdown and LaTeX. A cell may have several lines, and the title may be empty.

    Attributes:
        labels: number of leading columns that name a row.
        notes: sentences below the table.
        prose: positions of columns that hold sentences; only the lines of their cells are wrapped.
        spare: positions of columns that another table has too; they are dropped if the terminal is too narrow.
    """

    title: str = ""
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1
    notes: tuple[str, ...] = ()
    prose: tuple[int, ...] = ()
    spare: tuple[int, ...] = ()


SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last ``width`` of ``values`` as a line of blocks, scaled from their minimum to their maximum.

    >>> sparkline([0.1, 0.2, 0.3, 0.1], 3)
    '▄█▁'
    """
    shown = values[-width:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    span = (high - low) or 1.0
    return "".join(SPARKS[int((value - low) / span * (len(SPARKS) - 1))] for value in shown)


def as_markdown(tables: Sequence[TextTable]) -> str:
    lines = []
    for table in tables:
        lines += [f"## {_escaped(table.title)}", ""] if table.title else []
        lines += [rows_as_markdown(table), ""] if table.rows else []
        lines += [*(f"- {_escaped(note)}" for note in table.notes), ""]
    return "\n".join(lines)


def rows_as_markdown(table: TextTable) -> str:
    """Return the rows without title and notes, padded to equal width so that the source is readable too."""
    header, *rows = [[_escaped(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(3, *map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * width if at < table.labels else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    lines = [
        [
            cell.ljust(width) if at < table.labels else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        for cells in (header, *rows)
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (lines[0], rule, *lines[1:]))


def _escaped(text: str) -> str:
    """Escape ``text`` and join its lines: not all Markdown viewers support lines within a cell."""
    return re.sub(r"([\\`*_|<])", r"\\\1", text).replace("\n", " ")


def as_latex(tables: Sequence[TextTable]) -> str:
    """Return LaTeX tables for the package booktabs, with their notes as comments.

    pandas' ``Styler.to_latex`` needs Jinja, does not support cells with several lines, and does not escape ±, −, < and
    a row's first bracket.
    """
    lines = [r"% \usepackage{booktabs}"]
    for table in tables:
        lines += [f"% {' '.join(note.split())}" for note in table.notes]
        if table.rows:
            columns = "l" * table.labels + "r" * (len(table.header) - table.labels)
            header = " & ".join(map(_latex_escaped, table.header))
            lines += [r"\begin{table}", r"\centering", rf"\caption{{{_latex_escaped(table.title)}}}"]
            lines += [rf"\label{{tab:{re.sub('[^a-z0-9]+', '-', table.title.partition(':')[0].lower()).strip('-')}}}"]
            lines += [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", rf"{header} \\", r"\midrule"]
            lines += [rf"{' & '.join(map(_latex_escaped, row))} \\" for row in table.rows]
            lines += [r"\bottomrule", r"\end{tabular}", r"\end{table}"]
        lines.append("")
    return "\n".join(lines)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "\n": " ", "|": r"\textbar{}",
    "[": "{[}",
}  # fmt: skip
"""LaTeX characters. ``[`` at the beginning of a row would be read as the length of the preceding line break."""


def _latex_escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


FORMATS = (".csv", ".md", ".tex")


def refuse_unknown(files: Sequence[str | Path], formats: Collection[str] = FORMATS, option: str = "--output") -> None:
    """Raise :class:`InvalidInput` if the suffix of a file, which the user gave with ``option``, is no format."""
    raise_if_any(
        [
            f"{option} {file}: the file's suffix sets the format and must be one of {', '.join(formats)}; it is "
            f"{suffix!r}."
            for file in files
            if (suffix := PurePath(file).suffix) not in formats
        ]
    )


@contextmanager
def writing(option: str, place: object) -> Iterator[None]:
    """Convert an error in writing to ``place``, which the user gave with ``option``, to :class:`InvalidInput`."""
    try:
        yield
    except OSError as error:
        raise InvalidInput(
            f"{option} {place}: it cannot be written ({error.strerror or error}); name another file."
        ) from error


def write_output(path: Path, csv: str, tables: Sequence[TextTable], paper: Sequence[TextTable] = ()) -> None:
    """Write ``csv``, or ``tables`` as Markdown or LaTeX, to ``path``, in the format of its suffix.

    ``paper`` are the tables in LaTeX where these are others.

    Raises:
        InvalidInput: the file cannot be written.
    """
    content = csv
    if path.suffix != ".csv":
        content = as_markdown(tables) if path.suffix == ".md" else as_latex(paper or tables)
    with writing("--output", path):
        write_text(path, content)
