"""Figures: what one consists of, its colours, and how it is drawn with Matplotlib or Plotly."""

import io
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from search.plan.stored import StoredSearch
from search.report.formats import loss_label
from search.report.results import Comparison, Row
from search.report.text_table import TextTable
from search.stages import Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# A picture with what it shows in words and the numbers behind it.


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


# The colours and marks of every picture, chosen to be told apart in light and dark, and without seeing colours.

INK: Final = "#1f2328"
FAINT: Final = "#8b949e"
LINE: Final = "#d0d7de"
GOOD: Final = "#1a7f5a"
BAD: Final = "#c2410c"

# Okabe and Ito's palette, of middle brightness where theirs is too light for a white or too dark for a black page.
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
MARKS: Final = ("o", "s", "D", "^", "v", "P", "X", "p", "h", "*")
PLOT_MARKS: Final = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "x",
    "pentagon",
    "hexagon",
    "star",
)


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    """A colour for each label, the same one wherever it is drawn; they repeat after ten."""
    return {label: COLOURS[position % len(COLOURS)] for position, label in enumerate(dict.fromkeys(labels))}


def marks_of(labels: Sequence[str]) -> dict[str, str]:
    """A mark of Matplotlib for each label, as :func:`colours_of`."""
    return {label: MARKS[position % len(MARKS)] for position, label in enumerate(dict.fromkeys(labels))}


# Still pictures: Matplotlib's SVG, with text as text and colours that the page around it may set.

WIDTH: Final = 460
"""Pixels that every drawing is wide: it is read as it is on a telephone, and several stand beside each other."""

_VARIABLES: Final[Mapping[str, str]] = {INK: "--ink", FAINT: "--faint", LINE: "--line"}
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,  # a class may be called $x$
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
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
    """The axes to draw on, and afterwards the ``drawing``."""

    axes: "Axes"
    drawing: Drawing


@contextmanager
def style(name: str) -> Iterator[None]:
    """The look of every still picture, in which it has to be drawn and written.

    ``name`` is the figure's, so that the names inside are its own and the same figure is the same text.
    """
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        # The text stays text, which whoever reads it has fonts for; and names of classes are not for the terminal.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


@contextmanager
def drawn(name: str, height: int) -> Iterator[Canvas]:
    """A canvas ``height`` pixels high for the figure ``name``; when the block is left, its ``drawing`` is there."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    canvas = Canvas()
    with style(name):
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        canvas.axes = figure.add_subplot()
        yield canvas
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    canvas.drawing = Drawing(_for_pages(text.getvalue()))


def _for_pages(svg: str) -> str:
    """Without what only a file of its own needs, and with CSS variables for the colours of text and lines."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<(?:g|text)) id="[^"]*"', r"\1", svg)  # Matplotlib names its groups alike in every picture
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    return svg


# Plotly's figures as all sections draw them.

LEGEND_BELOW: Mapping[str, Any] = {"x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"}
"""For many lines beside buttons, which stand where the legend does else."""
_CLEAR = "rgba(0,0,0,0)"


def plotted(traces: Sequence[Mapping[str, Any]], layout: Mapping[str, Any], *, height: int = 380) -> Plot:
    """The ``traces`` over a background that is the page's; fonts and the colours of grids are the page's too."""
    import plotly.graph_objects as go  # half a second

    figure = go.Figure(
        data=list(traces),
        layout={
            "template": None,
            "paper_bgcolor": _CLEAR,
            "plot_bgcolor": _CLEAR,
            "hovermode": "closest",
            **layout,
        },
    )
    return Plot(json.loads(figure.to_json()), height=height)


def buttons(*entries: tuple[str, str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """A row of buttons, each with its label and Plotly's method and arguments; the first one is on."""
    return [
        {
            "type": "buttons",
            "direction": "right",
            "x": 0,
            "y": 1.02,
            "xanchor": "left",
            "yanchor": "bottom",
            "pad": {"b": 4},
            # The page's own colour of text cannot be read on Plotly's own colour of a button that is on.
            "font": {"color": COLOURS[0], "size": 11},
            "bordercolor": FAINT,
            "buttons": [{"label": label, "method": method, "args": list(args)} for label, method, args in entries],
        }
    ]


def vertical(x: float, *, xref: str = "x", yref: str = "paper") -> dict[str, Any]:
    """A dotted vertical line over the whole height."""
    line = {"color": FAINT, "width": 1, "dash": "dot"}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "xref": xref, "yref": yref, "line": line}


def rounded(value: float) -> float:
    """Five significant digits: more are no pixels."""
    return float(f"{value:.5g}")


# What the rows of a comparison are called in pictures.


def row_label(comparison: Comparison, row: Row) -> str:
    """A row: its loss, and whether its configuration is the default or the chosen one."""
    role = "default" if row.role is Role.DEFAULT else "tuned"
    return f"{loss_label(comparison, row.search, row.loss)}, {role}"


def named_losses(searches: Sequence[StoredSearch]) -> Iterator[tuple[str, StoredSearch, str]]:
    """Every loss of every search, with its label; the search's name is in it where there are several."""
    for search in searches:
        for loss in search.losses:
            yield (loss if len(searches) == 1 else f"{search.name}/{loss}"), search, loss
