"""Parts of a report, and the drawing of its figures with Matplotlib or Plotly."""

import io
import itertools
import json
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from search.plan.stored import StoredSearch
from search.report.compared import Comparison, Pair
from search.report.formats import loss_label
from search.report.rows import Row
from search.report.text_table import TextTable
from search.stages import Role
from trainables.errors import counted

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes


# Sections and figures.


@dataclass(frozen=True)
class Drawing:
    """A static SVG picture; the page sets its colours through CSS variables."""

    svg: str


@dataclass(frozen=True)
class Plot:
    """An interactive picture: a figure in Plotly's JSON, ``height`` pixels high."""

    figure: Mapping[str, Any]
    height: int = 380


@dataclass(frozen=True)
class Photograph:
    """A WebP or PNG file with its size in pixels."""

    content: bytes
    media_type: str
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture, a one-sentence ``finding``, and a ``table`` of its numbers.

    ``name`` is unique in a report: letters, digits and hyphens. A ``wide`` figure takes the full width of the page.
    """

    name: str
    title: str
    finding: str
    picture: Drawing | Plot | Photograph
    table: TextTable
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

INK: Final = "#1f2328"
FAINT: Final = "#8b949e"
LINE: Final = "#d0d7de"
GOOD: Final = "#1a7f5a"
BAD: Final = "#c2410c"

# Okabe and Ito's palette, adjusted in brightness to contrast with both white and black.
COLOURS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#c9629b",
    "#8a7a00",
    "#3aa0d8",
    "#7a5cc0",
    "#a0522d",
    "#5f7d8c",
    "#b8860b",
)
PLOT_MARKS: Final = {
    "o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down", "P": "cross", "X": "x",
    "p": "pentagon", "h": "hexagon", "*": "star",
}  # fmt: skip
"""Plotly's name of each of Matplotlib's marks."""


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """Return a colour for each label; colours repeat after ten."""
    return dict(zip(dict.fromkeys(labels), itertools.cycle(COLOURS)))


def marks_of(labels: Sequence[str]) -> dict[str, str]:
    """Return a Matplotlib mark for each label; marks repeat after ten."""
    return dict(zip(dict.fromkeys(labels), itertools.cycle(PLOT_MARKS)))


# Static pictures: Matplotlib's SVG, with text kept as text.

WIDTH: Final = 460
"""Width of every drawing in pixels: readable on a phone, and several fit next to each other."""

_VARIABLES: Final[Mapping[str, str]] = {INK: "--ink", FAINT: "--faint", LINE: "--line"}
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a class name may be $x$
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.labelpad": 7,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


class Canvas:
    """The ``axes`` to draw on, the first of its ``grid``, and the finished ``drawing``."""

    axes: "Axes"
    grid: "list[Axes]"
    drawing: Drawing


@contextmanager
def style(name: str) -> Iterator[None]:
    """Set Matplotlib's style while a picture is drawn and saved.

    The figure's ``name`` seeds the identifiers in the SVG, so that the same figure always gives the same text.
    """
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # Text stays text and the browser has the fonts; the warning would print class names on the terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


@contextmanager
def drawn(name: str, height: int, grid: tuple[int, int] = (1, 1)) -> Iterator[Canvas]:
    """Yield a canvas ``height`` pixels high for the figure ``name``; leaving the block sets its ``drawing``.

    ``grid`` has the numbers of rows and columns of axes, which share the y axis.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas = Canvas()
    with style(name):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        canvas.grid = list(figure.subplots(*grid, sharey=True, squeeze=False).flat)
        canvas.axes = canvas.grid[0]
        yield canvas
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    canvas.drawing = Drawing(_for_pages(text.getvalue()))


def _for_pages(svg: str) -> str:
    """Strip the parts that only a separate SVG file needs, and replace text and line colours with CSS variables."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(rf'(<g) id="{_OF_LOSS}([^"]*)"', r'\1 data-loss="\2"', svg)
    svg = re.sub(r'(<(?:g|text)) id="[^"]*"', r"\1", svg)  # Matplotlib repeats group ids in every picture
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    return svg


LABEL_LENGTH: Final = 52
"""Characters of a line below the x axis, which is narrower than the drawing where rows have names."""
LEGEND_MARK, LEGEND_LETTER, LEGEND_ROW = 45, 6, 14
"""Sizes in pixels: widths of a legend's line and of an average letter, and the height of a row."""
_OF_LOSS: Final = "loss:"


def mark_loss(loss: str, *artists: "Artist") -> None:
    """Mark what is drawn for a loss, or for several separated by spaces; the page hides it with any of them."""
    for artist in artists:
        artist.set_gid(f"{_OF_LOSS}{loss}")


def label_rows(axes: "Axes", labels: Sequence[str], xlabel: str, losses: Sequence[str] | None = None) -> None:
    """Label the rows of a chart at y = 0, 1, …, the first one on top, and its x axis.

    ``losses`` has the loss of each row.
    """
    axes.set_yticks(range(len(labels)), labels)
    for loss, text in zip(losses or (), axes.get_yticklabels()):
        mark_loss(loss, text)
    axes.invert_yaxis()
    axes.set_xlabel(textwrap.fill(xlabel, LABEL_LENGTH), color=FAINT)
    axes.grid(visible=True, axis="x")


def legend_below(axes: "Axes", columns: int, y: float = -0.16, losses: Sequence[str] = ()) -> None:
    """Put the legend below the x axis; ``y`` is a fraction of the height of the axes.

    It has at most ``columns``, and fewer for long labels; then the figure grows with the rows. What a label has beyond
    the width of the figure is cut off its beginning. ``losses`` has the loss of each of its first entries.
    """
    handles, labels = axes.get_legend_handles_labels()
    most = int((WIDTH - LEGEND_MARK) / LEGEND_LETTER)
    shown = [label if len(label) <= most else f"…{label[1 - most :]}" for label in labels]
    fewer = min(columns, int(WIDTH / (LEGEND_MARK + LEGEND_LETTER * max(map(len, shown), default=0))))
    figure: Any = axes.figure
    added = math.ceil(len(labels) / fewer) - math.ceil(len(labels) / columns)
    figure.set_figheight(figure.get_figheight() + added * LEGEND_ROW / 72)
    legend = axes.legend(handles, shown, loc="upper left", bbox_to_anchor=(0, y), ncols=fewer)
    for loss, handle, text in zip(losses, legend.legend_handles, legend.get_texts()):
        mark_loss(loss, text, *([handle] if handle else []))


# Interactive pictures: Plotly.

_CLEAR = "rgba(0,0,0,0)"


def plotted(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], *, height: int = 380) -> Plot:
    """Return a plot of ``traces`` with a transparent background; the page sets fonts and grid colours."""
    import plotly.graph_objects as go  # half a second

    clear = {"template": None, "paper_bgcolor": _CLEAR, "plot_bgcolor": _CLEAR, "hovermode": "closest"}
    return Plot(json.loads(go.Figure(data=list(traces), layout={**clear, **layout}).to_json()), height=height)


def scatter(name: str, mode: str, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """Return a scatter trace; ``mode`` is Plotly's, such as "lines" or "markers"."""
    return {"type": "scatter", "name": name, "mode": mode, "x": x, "y": y, **more}


def of_loss(loss: str) -> dict[str, Any]:
    """Return the trace entries that hide it with ``loss`` on the whole page."""
    return {"legendgroup": loss, "meta": {"loss": loss}}


def hover_text(texts: Sequence[str]) -> dict[str, Any]:
    """Return the trace entries that show each point's text on hover."""
    return {"text": texts, "hovertemplate": "%{text}<extra></extra>"}


def rounded(value: float) -> float:
    """Round to five significant digits, finer than a pixel."""
    return float(f"{value:.5g}")


# Names and wording that figures share.


def row_label(comparison: Comparison, row: Row) -> str:
    """Return the row's loss and role, such as "mpa, tuned", or the name of a baseline."""
    label = loss_label(comparison, row.search, row.loss)
    return label if row.role is Role.BASELINE else f"{label}, {row.role}"


def loss_styles(comparison: Comparison) -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours and the marks of all losses by label, the same in every figure of the comparison."""
    # baselines last, so that a loss has its colour with and without them
    rows = sorted(comparison.rows, key=lambda row: row.role is Role.BASELINE)
    labels = [loss_label(comparison, row.search, row.loss) for row in rows]
    return colours_of(labels), marks_of(labels)


def pairs_finding(pairs: Sequence[Pair]) -> str:
    """Return a sentence on how many of the pairs differ significantly."""
    metric, found = pairs[0].metric, sum(pair.differ for pair in pairs)
    if found == 0:
        where = "the only pair" if len(pairs) == 1 else f"any of the {len(pairs):,} pairs"
        return f"No significant difference in {metric} in {where} (corrected for all pairs)."
    differ = "differs" if found == 1 else "differ"
    return f"{found:,} of {counted(len(pairs), 'pair')} {differ} significantly in {metric} (corrected for all pairs)."


def named_losses(searches: Sequence[StoredSearch]) -> Iterator[tuple[str, StoredSearch, str]]:
    """Yield label, search and loss for every loss; labels name the search where there are several."""
    for search in searches:
        for loss in search.losses:
            yield (loss if len(searches) == 1 else f"{search.name}/{loss}"), search, loss
