"""Parts of a report, and the drawing of its figures with Plotly."""

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from search.text_table import TextTable
from trainables.metrics import unit


@dataclass(frozen=True)
class Plot:
    """An interactive picture: a figure in Plotly's JSON, ``height`` pixels high."""

    figure: Mapping[str, Any]
    height: int = 380


@dataclass(frozen=True, kw_only=True)
class Photograph:
    """An image with the ``name`` of its class: a WebP file, or None without one.

    ``right`` says if a neighbour is of the query's class; it is None for a query.
    """

    content: bytes | None
    name: str
    right: bool | None = None


@dataclass(frozen=True, kw_only=True)
class ShownQuery:
    """A query, and by configuration its nearest images, the nearest one first."""

    key: str
    photograph: Photograph
    neighbours: Mapping[str, tuple[Photograph, ...]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture, a one-sentence ``finding``, and a ``table`` of its numbers, unless these are beside it.

    ``name`` is unique in a report: letters, digits and hyphens. A ``wide`` figure takes the full width of the page.
    """

    name: str
    title: str
    finding: str
    picture: Plot | tuple[ShownQuery, ...]
    table: TextTable | None = None
    wide: bool = False


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report, in the order in which the page shows its fields.

    ``lead`` precedes the ``results``, the tables above its text, of which at most three ``sentences`` precede the
    ``figures``; the other ones are ``remarks``. ``pending`` says what is not there yet, ``missing`` what a fault
    removed, ``files`` are pairs of name and content. A section on one ``loss`` is hidden with it.
    """

    name: str
    title: str
    lead: tuple[str, ...] = ()
    results: tuple[TextTable, ...] = ()
    sentences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    remarks: tuple[str, ...] = ()
    tables: tuple[TextTable, ...] = ()
    pending: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    loss: str | None = None


# Colours and marks, distinguishable on light and dark pages and by colour-blind readers.

FAINT: Final = "#8b949e"
PALE: Final = "#c4cad0"
"""A background on which text can be read."""
GOOD: Final = "#1a7f5a"
BAD: Final = "#c2410c"

# Okabe and Ito's palette, adjusted in brightness to contrast with both white and black.
COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#c9629b", "#8a7a00", "#3aa0d8", "#7a5cc0", "#a0522d", "#5f7d8c", "#b8860b",
)  # fmt: skip
MARKS: Final = (
    "circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "pentagon", "hexagon", "star",
)  # fmt: skip


def looks_of(labels: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and Plotly's name of a mark for each label; they repeat after ten."""
    return dict(zip(dict.fromkeys(labels), itertools.cycle(zip(COLOURS, MARKS, strict=True))))


_CLEAR = "rgba(0,0,0,0)"
_MARKUP = re.compile(r"<(?!br>|/?extra>)")
"""What Plotly would read as markup in a name, other than the tags of our hover texts."""


def plotted(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], *, height: int = 380) -> Plot:
    """Return a plot of ``traces`` with a transparent background; the page sets fonts and grid colours."""
    import plotly.graph_objects as go  # half a second

    return as_plot(go.Figure(data=list(traces), layout=layout), height=height)


def as_plot(figure: Any, *, height: int) -> Plot:
    """Return a figure of Plotly as the page shows it; names that are markup stay text."""
    clear = {"template": None, "paper_bgcolor": _CLEAR, "plot_bgcolor": _CLEAR, "hovermode": "closest"}
    content = json.dumps(json.loads(figure.update_layout(clear).to_json()))
    return Plot(json.loads(_MARKUP.sub("&lt;", content)), height=height)


def scatter(name: str, mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """Return a scatter trace; ``mode`` is Plotly's, such as "lines" or "markers"."""
    return {"type": "scatter", "name": name, "mode": mode, "x": x, "y": y, **more}


def of_loss(loss: str) -> dict[str, Any]:
    """Return the trace entries that hide it with ``loss`` on the whole page."""
    return {"legendgroup": loss, "meta": {"loss": loss}}


def hover_text(texts: Sequence[str]) -> dict[str, Any]:
    """Return the trace entries that show each point's text on hover."""
    return {"text": texts, "hovertemplate": "%{text}<extra></extra>"}


def axis_title(metric: str) -> str:
    """Return the title of an axis of values in the unit of the ``metric``."""
    return f"{metric}, %" if unit(metric) > 1 else metric


def named_rows(labels: Sequence[str], xlabel: str) -> dict[str, Any]:
    """Return the layout of a chart with a row for each label at y = 0, 1, …, the first one on top."""
    return {
        "yaxis": {"tickvals": list(range(len(labels))), "ticktext": list(labels), "range": [len(labels) - 0.5, -0.5]},
        "xaxis": {"title": {"text": xlabel}},
        "margin": {"t": 25},
    }


def rounded(value: float) -> float:
    """Round to five significant digits, finer than a pixel."""
    return float(f"{value:.5g}")
