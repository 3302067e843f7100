"""How much a further negative costs: average precision's loss at several R(i, P), and PNP-D.

Shapes: P values of R(i, N).
"""

from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.pnp_3 import built, named
from examples.papers.slopes import curve
from examples.papers.table import Shown
from search.report.drawing import BAD, COLOURS, INK, MARKS
from search.report.text_table import TextTable
from trainables.losses.ranking import SmoothAP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST: Final = 5
POSITIVES: Final = (0, 1, 2, 3)
STEEPNESS: Final = 2.0
"""α of the caption; the experiments have 4."""


def ap_slope(positives: int, at_P: NDArray[np.float64]) -> NDArray[np.float64]:
    """∂L_AP/∂R(i, N) with so many positives before i."""
    return curve(lambda before_P: SmoothAP.penalty(torch.tensor(float(positives)), before_P), at_P).slope_P


def pnp_5(figure: "Figure") -> Shown:
    """The derivatives by R(i, N)."""
    axes = figure.subplots()
    at_P, told_P = np.linspace(0, MOST, 251), np.arange(MOST + 1.0)
    rows = []
    for positives, colour, mark in zip(POSITIVES, COLOURS, MARKS, strict=False):
        label = f"AP, R(i, P) = {positives}"
        axes.plot(at_P, ap_slope(positives, at_P), color=colour, marker=mark, markevery=50, markersize=5, label=label)
        rows.append((label, *(f"{slope:.4f}" for slope in ap_slope(positives, told_P))))
    for loss, line, colour in ((built("Ds"), ":", INK), (built("Dq", alpha=STEEPNESS), "--", BAD)):
        axes.plot(at_P, curve(loss.penalty, at_P).slope_P, line, color=colour, linewidth=1.8, label=named(loss))
        rows.append((named(loss), *(f"{slope:.4f}" for slope in curve(loss.penalty, told_P).slope_P)))
    axes.set_xlabel("R(i, N): negatives before the positive i")
    axes.set_ylabel("derivative of the loss by R(i, N)")
    axes.set_xlim(0, MOST)
    axes.set_ylim(0, None)
    axes.grid()
    axes.legend()
    ends = np.array([0.0, MOST])
    falls = [float(high / low) for high, low in (ap_slope(positives, ends) for positives in POSITIVES)]
    steep = curve(built("Dq", alpha=STEEPNESS).penalty, ends).slope_P
    return Shown(
        finding=(
            f"From R(i, N) = 0 to {MOST} the derivative of AP's loss falls to 1/{falls[0]:.0f} with no positive "
            f"before, and to 1/{falls[-1]:.1f} with {POSITIVES[-1]}; that of PNP-Dq with α = {STEEPNESS:g} is steeper, "
            f"from {steep[0]:g} to 1/{steep[0] / steep[1]:.0f} of it."
        ),
        table=TextTable(
            title="",
            header=("derivative of", *(f"at R(i, N) = {entry:g}" for entry in told_P)),
            rows=tuple(rows),
            labels=1,
            notes=("Smooth-AP's and PNP's own functions, by autograd.",),
        ),
    )
