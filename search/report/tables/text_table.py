"""A table of text, which a terminal, Markdown and LaTeX show alike."""

from dataclasses import dataclass

NOTHING = "–"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """A table of text. The first ``labels`` columns name a row; a cell may have several lines."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int
    notes: tuple[str, ...]
