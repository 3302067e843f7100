"""The loss of average precision over R(i, P) and R(i, N), with its steepest way down.

Shapes: P values of R(i, P), N values of R(i, N).
"""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.table import Shown
from search.report.drawing import INK
from search.report.text_table import TextTable
from trainables.losses.ranking import SmoothAP

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST: Final = 10
TOLD: Final = (0, 1, 2, 5, 10)


class Surface(NamedTuple):
    """The loss, and its derivatives by R(i, P) and by R(i, N): float64 [P, N]."""

    loss_PN: NDArray[np.float64]
    by_positives_PN: NDArray[np.float64]
    by_negatives_PN: NDArray[np.float64]


def surface(positives_P: NDArray[np.float64], negatives_N: NDArray[np.float64]) -> Surface:
    """What Smooth-AP makes of every R(i, P) with every R(i, N)."""
    grid = np.meshgrid(positives_P, negatives_N, indexing="ij")
    positives_PN, negatives_PN = (torch.tensor(entry, dtype=torch.float64, requires_grad=True) for entry in grid)
    loss_PN = SmoothAP.penalty(positives_PN, negatives_PN)
    slopes = torch.autograd.grad(loss_PN.sum(), (positives_PN, negatives_PN))
    return Surface(loss_PN.detach().numpy(), *(slope_PN.numpy() for slope_PN in slopes))


def pnp_1(figure: "Figure") -> Shown:
    """Contours of the loss, and arrows of one length against its gradient."""
    axes = figure.subplots()
    fine, coarse = np.linspace(0, MOST, 201), np.linspace(0.5, MOST - 0.5, 10)
    levels = np.linspace(0, 1, 11)
    filled = axes.contourf(fine, fine, surface(fine, fine).loss_PN, levels=levels, cmap="YlGnBu")
    bar = figure.colorbar(filled, ax=axes, label="1 − (1 + R(i, P)) / (1 + R(i, P) + R(i, N))")
    bar.outline.set_visible(False)
    _, by_positives_PN, by_negatives_PN = surface(coarse, coarse)
    length_PN = np.hypot(by_positives_PN, by_negatives_PN)
    arrows = (-by_negatives_PN / length_PN, -by_positives_PN / length_PN)
    axes.quiver(coarse, coarse, *arrows, color=INK, pivot="middle", scale=22, width=0.004)
    axes.set_xlabel("R(i, N): negatives before the positive i")
    axes.set_ylabel("R(i, P): positives before it")
    axes.set_xlim(0, MOST)
    axes.set_ylim(0, MOST)
    corner = surface(np.array([0.0]), np.array([float(MOST)]))
    told = np.array(TOLD, dtype=np.float64)
    found = surface(told, told)
    return Shown(
        finding=(
            f"The loss is {found.loss_PN[:, 0].max():g} where no negative is before the positive, whatever R(i, P), "
            f"and nowhere else (smallest at R(i, N) = 1: {found.loss_PN[:, 1].min():.3f}). More positives before it "
            f"lower the loss too: with {MOST} negatives and no positive before it the steepest way down goes "
            f"{-corner.by_positives_PN.item() / corner.by_negatives_PN.item():+.0f} in R(i, P) for −1 in R(i, N)."
        ),
        table=TextTable(
            title="",
            header=("R(i, P)", *(f"loss at R(i, N) = {entry}" for entry in TOLD)),
            rows=tuple(
                (str(entry), *(f"{loss:.4f}" for loss in loss_N))
                for entry, loss_N in zip(TOLD, found.loss_PN, strict=True)
            ),
            labels=1,
            notes=("Smooth-AP's own function; the arrows go against its gradient and have one length.",),
        ),
    )
