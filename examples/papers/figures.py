"""Table of figures, and how one is drawn to a file. A figure's module is imported only when it is drawn."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from search.text_table import TextTable
from trainables.common.part_tables import PartRow, load_part


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Result of drawing a figure: a computed finding in a sentence or two, and its numbers."""

    finding: str
    table: TextTable


@dataclass(frozen=True, kw_only=True)
class FigureRow(PartRow):
    """A figure: the function at ``path`` draws on a Matplotlib figure and returns :class:`Shown`. Sizes in pixels."""

    source: str
    title: str
    width: int
    height: int


_HERE: Final = "examples.papers"
_PNP: Final = "Li et al., PNP"
_SAMPLING: Final = "Lu et al., Sampling Wisely"

FIGURES: Final = {
    "pnp-1": FigureRow(
        path=f"{_HERE}.pnp:pnp_1",
        source=f"{_PNP}, Fig. 1",
        title="The loss of average precision by the positives and the negatives before a positive",
        width=680,
        height=480,
    ),
    "pnp-3": FigureRow(
        path=f"{_HERE}.pnp:pnp_3",
        source=f"{_PNP}, Fig. 3",
        title="The variants of PNP and their derivatives by the negatives before a positive",
        width=1100,
        height=460,
    ),
    "pnp-5": FigureRow(
        path=f"{_HERE}.pnp:pnp_5",
        source=f"{_PNP}, Fig. 5",
        title="The derivatives of average precision's loss and of PNP-D",
        width=640,
        height=420,
    ),
    "pnp-6": FigureRow(
        path=f"{_HERE}.pnp_toy:pnp_6",
        source=f"{_PNP}, Fig. 6",
        title="A network of 30-30 units on points of the plane, before and after training with each variant of PNP",
        width=1120,
        height=640,
    ),
    "sampling-1": FigureRow(
        path=f"{_HERE}.sampling:sampling_1",
        source=f"{_SAMPLING}, Fig. 1",
        title="What top-k precision and a triplet far from the boundary move",
        width=1120,
        height=470,
    ),
    "sampling-2": FigureRow(
        path=f"{_HERE}.sampling:sampling_2",
        source=f"{_SAMPLING}, Fig. 2",
        title="The loss of a ranking with fewer positives than k",
        width=840,
        height=330,
    ),
    "sampling-3": FigureRow(
        path=f"{_HERE}.sampling:sampling_3",
        source=f"{_SAMPLING}, Fig. 3",
        title="The loss of a ranking with k positives or more",
        width=840,
        height=330,
    ),
}

INK: Final = "#1f2328"
LINE: Final = "#d0d7de"
MARKS: Final = ("o", "s", "D", "^", "v", "P", "X", "p", "h", "*")
_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.labelpad": 7,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": "#8b949e",
    "ytick.color": "#8b949e",
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


@contextmanager
def style(name: str) -> Iterator[None]:
    """Set Matplotlib's style while the figure ``name`` is drawn and saved; the same figure gives the same SVG."""
    import matplotlib

    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # SVG keeps text as text
        yield


SUFFIXES: Final = (".svg", ".png")
_PNG_DPI: Final = 144
"""Two pixels of the file for each of the figure, for high-density screens."""


def picture(name: str, suffix: str) -> tuple[bytes, Shown]:
    """Draw the figure ``name`` in the format of ``suffix``, reproducibly to the byte: SVG with text as text, or PNG.

    ``pnp-6`` trains networks for some seconds.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    row = FIGURES[name]
    draw: Callable[[Figure], Shown] = load_part(row.path)
    with style(name):
        figure = Figure(figsize=(row.width / 72, row.height / 72), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        figure.suptitle(f"{row.title} ({row.source})", fontsize=11)
        shown = draw(figure)
        content = io.BytesIO()
        if suffix == ".svg":
            figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(content, format="png", dpi=_PNG_DPI, metadata={"Software": None})
    return content.getvalue(), shown
