"""A table of text, which a terminal, Markdown and LaTeX show alike."""

from dataclasses import dataclass

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text. The first ``labels`` columns name a row; a cell may have several lines.

    The lines of a cell are never broken, but for the columns at the positions in ``prose``: these hold sentences.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int
    notes: tuple[str, ...] = ()
    prose: tuple[int, ...] = ()
