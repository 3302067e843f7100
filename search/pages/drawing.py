"""Still pictures: Matplotlib's SVG, with text as text and colours that the page around it may set."""

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from search.pages.figure import Drawing
from search.pages.ink import FAINT, INK, LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
