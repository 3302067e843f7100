"""A figure of a paper as a file of its own: SVG with text as text, or PNG, on white."""

import io
from collections.abc import Callable
from typing import Final

from examples.papers.table import FIGURES, Shown
from search.report.drawing import style
from trainables.parts import load_part

SUFFIXES: Final = (".svg", ".png")
_PNG_DPI: Final = 144
"""Two pixels of the file for each of the figure, for screens that have as many."""


def picture(name: str, suffix: str) -> tuple[bytes, Shown]:
    """The figure ``name`` in the format of ``suffix``, always the same bytes, and what it shows.

    Drawing computes; ``pnp-6`` trains for some seconds.
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
