"""Every figure by name, and what a drawn one says. Nothing is imported before a figure is drawn."""

from dataclasses import dataclass
from typing import Final

from search.report.text_table import TextTable
from trainables.parts import PartRow


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a picture shows in a sentence or two that are computed, and its numbers."""

    finding: str
    table: TextTable


@dataclass(frozen=True, kw_only=True)
class FigureRow(PartRow):
    """A figure: the function at ``path`` draws on Matplotlib's figure of so many pixels and returns :class:`Shown`."""

    source: str
    title: str
    width: int
    height: int


_HERE: Final = "examples.papers"
_PNP: Final = "Li et al., PNP"
_SAMPLING: Final = "Lu et al., Sampling Wisely"

FIGURES: Final = {
    "pnp-1": FigureRow(
        path=f"{_HERE}.pnp_1:pnp_1",
        source=f"{_PNP}, Fig. 1",
        title="The loss of average precision by the positives and the negatives before a positive",
        width=680,
        height=480,
    ),
    "pnp-3": FigureRow(
        path=f"{_HERE}.pnp_3:pnp_3",
        source=f"{_PNP}, Fig. 3",
        title="The variants of PNP and their derivatives by the negatives before a positive",
        width=1100,
        height=460,
    ),
    "pnp-5": FigureRow(
        path=f"{_HERE}.pnp_5:pnp_5",
        source=f"{_PNP}, Fig. 5",
        title="The derivatives of average precision's loss and of PNP-D",
        width=640,
        height=420,
    ),
    "pnp-6": FigureRow(
        path=f"{_HERE}.pnp_6:pnp_6",
        source=f"{_PNP}, Fig. 6",
        title="A network of 30-30 units on points of the plane, before and after training with each variant of PNP",
        width=1120,
        height=640,
    ),
    "sampling-1": FigureRow(
        path=f"{_HERE}.sampling_1:sampling_1",
        source=f"{_SAMPLING}, Fig. 1",
        title="What top-k precision and a triplet far from the boundary move",
        width=1120,
        height=470,
    ),
    "sampling-2": FigureRow(
        path=f"{_HERE}.worked_ranking:sampling_2",
        source=f"{_SAMPLING}, Fig. 2",
        title="The loss of a ranking with fewer positives than k",
        width=840,
        height=330,
    ),
    "sampling-3": FigureRow(
        path=f"{_HERE}.worked_ranking:sampling_3",
        source=f"{_SAMPLING}, Fig. 3",
        title="The loss of a ranking with k positives or more",
        width=840,
        height=330,
    ),
}
