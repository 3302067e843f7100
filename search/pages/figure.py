"""A picture with what it shows in words and the numbers behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search.report.tables.text_table import TextTable


@dataclass(frozen=True)
class Drawing:
    """A still picture: SVG whose colours a page may set through its CSS variables."""

    svg: str


@dataclass(frozen=True)
class Plot:
    """A picture to hover over and to zoom into: a figure in Plotly's JSON, ``height`` pixels high."""

    figure: Mapping[str, Any]
    height: int = 380


@dataclass(frozen=True)
class Photograph:
    """A still picture of pixels: a WebP or PNG file, with its size in pixels."""

    content: bytes
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One picture. ``finding`` says in a sentence what it shows, and ``table`` has its numbers.

    ``name`` is its own in a report: letters, digits and hyphens. A ``wide`` figure needs the whole width of a page.
    """

    name: str
    title: str
    finding: str
    picture: Drawing | Plot | Photograph
    table: TextTable
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report. ``sentences`` are its text, ``missing`` says what is not there and why.

    ``files`` are shown as they are, each with its name.
    """

    name: str
    title: str
    sentences: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    figures: tuple[Figure, ...] = ()
    missing: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
