"""Analytic figures of PNP (Li et al., Rethinking the Optimization of Average Precision): Figs. 1, 3 and 5.

Losses are those that train, and their derivatives are computed by autograd.

Shapes: P values of R, or of R(i, P); N values of R(i, N).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.figures import INK, MARKS, Shown
from search.show.drawing import BAD, COLOURS
from search.text_table import TextTable
from trainables.losses.pairs import PNP, VARIANTS, SmoothAP

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Curve(NamedTuple):
    """Values and derivatives of a function: float64 [P]."""

    value_P: NDArray[np.float64]
    slope_P: NDArray[np.float64]


def curve(function: Callable[[torch.Tensor], torch.Tensor], at_P: NDArray[np.float64]) -> Curve:
    """Evaluate an elementwise ``function`` and its derivative at ``at_P``."""
    points_P = torch.tensor(at_P, dtype=torch.float64, requires_grad=True)
    value_P = function(points_P)
    (slope_P,) = torch.autograd.grad(value_P.sum(), points_P)
    return Curve(value_P.detach().numpy(), slope_P.numpy())


# Fig. 1.

RANK_LIMIT: Final = 10
RANKS_SHOWN: Final = (0, 1, 2, 5, 10)


class Surface(NamedTuple):
    """The loss, and its derivatives by R(i, P) and by R(i, N): float64 [P, N]."""

    loss_PN: NDArray[np.float64]
    by_positives_PN: NDArray[np.float64]
    by_negatives_PN: NDArray[np.float64]


def surface(positives_P: NDArray[np.float64], negatives_N: NDArray[np.float64]) -> Surface:
    """Evaluate Smooth-AP for every R(i, P) with every R(i, N)."""
    grid = np.meshgrid(positives_P, negatives_N, indexing="ij")
    positives_PN, negatives_PN = (torch.tensor(entry, dtype=torch.float64, requires_grad=True) for entry in grid)
    loss_PN = SmoothAP.penalty(positives_PN, negatives_PN)
    slopes = torch.autograd.grad(loss_PN.sum(), (positives_PN, negatives_PN))
    return Surface(loss_PN.detach().numpy(), *(slope_PN.numpy() for slope_PN in slopes))


def pnp_1(figure: "Figure") -> Shown:
    """Draw contours of average precision's loss, and arrows of equal length against its gradient."""
    axes = figure.subplots()
    fine, coarse = np.linspace(0, RANK_LIMIT, 201), np.linspace(0.5, RANK_LIMIT - 0.5, 10)
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
    axes.set_xlim(0, RANK_LIMIT)
    axes.set_ylim(0, RANK_LIMIT)
    corner = surface(np.array([0.0]), np.array([float(RANK_LIMIT)]))
    told = np.array(RANKS_SHOWN, dtype=np.float64)
    found = surface(told, told)
    return Shown(
        finding=(
            f"The loss is {found.loss_PN[:, 0].max():g} where no negative is before the positive, whatever R(i, P), "
            f"and nowhere else (smallest at R(i, N) = 1: {found.loss_PN[:, 1].min():.3f}). More positives before it "
            f"lower the loss too: with {RANK_LIMIT} negatives and no positive before it the steepest way down goes "
            f"{-corner.by_positives_PN.item() / corner.by_negatives_PN.item():+.0f} in R(i, P) for −1 in R(i, N)."
        ),
        table=TextTable(
            title="",
            header=("R(i, P)", *(f"loss at R(i, N) = {entry}" for entry in RANKS_SHOWN)),
            rows=tuple(
                (str(entry), *(f"{loss:.4f}" for loss in loss_N))
                for entry, loss_N in zip(RANKS_SHOWN, found.loss_PN, strict=True)
            ),
            labels=1,
            notes=("Smooth-AP's own function; the arrows go against its gradient and have one length.",),
        ),
    )


# Fig. 3.

VARIANT_RANKS: Final = (0, 1, 10)


class Printed(NamedTuple):
    """A derivative as the paper prints it, and its equation."""

    equation: str
    of: Callable[[NDArray[np.float64], PNP], NDArray[np.float64]]


PRINTED: Final[Mapping[str, Printed]] = {
    "O": Printed("eq. 5", lambda before_P, loss: np.ones_like(before_P)),
    "Iu": Printed("eq. 6", lambda before_P, loss: np.log1p(before_P)),
    "Ib": Printed("eq. 8", lambda before_P, loss: before_P / (1 + loss.bound * before_P)),
    "Ds": Printed("eq. 10", lambda before_P, loss: 1 / (1 + before_P)),
    "Dq": Printed("eq. 11", lambda before_P, loss: loss.alpha / (1 + before_P) ** (loss.alpha + 1)),
}
SAME: Final = 1e-9
"""Derivatives that differ by less are equal up to rounding."""


def built(variant: str, **hyperparameters: float) -> PNP:
    """Build PNP of a variant, with the recipes' defaults for other params."""
    return PNP(num_classes=1, embedding_dim=1, variant=variant, **hyperparameters)


def named(loss: PNP) -> str:
    """Return the variant's label, with its param if it has one."""
    own = {"Ib": f", b = {loss.bound:g}", "Dq": f", α = {loss.alpha:g}"}
    return f"PNP-{loss.variant}{own.get(loss.variant, '')}"


def pnp_3(figure: "Figure") -> Shown:
    """Draw each variant above its derivative, and as a dashed line the paper's derivative if it differs."""
    at_P = np.linspace(0, RANK_LIMIT, 401)
    above, below = figure.subplots(2, len(VARIANTS), sharex=True)
    rows, wrong = [], []
    for place, variant in enumerate(VARIANTS):
        loss, (equation, printed) = built(variant), PRINTED[variant]
        value_P, slope_P = curve(loss.penalty, at_P)
        printed_P = printed(at_P, loss)
        apart = float(np.abs(slope_P - printed_P).max())
        colour = COLOURS[place]
        above[place].plot(at_P, value_P, color=colour, linewidth=1.8)
        above[place].set_title(f"({'abcde'[place]}) {named(loss)}")
        below[place].plot(at_P, slope_P, color=colour, linewidth=1.8, label="ours")
        if apart > SAME:
            below[place].plot(at_P, printed_P, "--", color=BAD, linewidth=1.4, label=f"as printed, {equation}")
            below[place].legend(loc="lower right")
            wrong.append(f"{named(loss)}'s by {apart:g} ({equation})")
        below[place].set_xlabel("R(i, N)")
        for axes, top in ((above[place], value_P.max()), (below[place], max(slope_P.max(), printed_P.max()))):
            axes.set_xlim(0, RANK_LIMIT)
            axes.set_ylim(0, 1.08 * top)
            axes.grid()
        told = curve(loss.penalty, np.array(VARIANT_RANKS, dtype=np.float64))
        numbers = [f"{entry:.4g}" for entry in (*told.value_P, *told.slope_P)]
        rows.append((named(loss), *numbers, equation, "the same" if apart <= SAME else f"differs by {apart:g}"))
    above[0].set_ylabel("loss f(R)")
    below[0].set_ylabel("derivative f′(R)")
    return Shown(
        finding=_pnp_3_finding(wrong),
        table=TextTable(
            title="",
            header=(
                "variant",
                *(f"f({entry})" for entry in VARIANT_RANKS),
                *(f"f′({entry})" for entry in VARIANT_RANKS),
                "printed f′",
                "against ours",
            ),
            rows=tuple(rows),
            labels=1,
            notes=(f"R from 0 to {RANK_LIMIT}; the derivatives are those of the losses that train, by autograd.",),
        ),
    )


def _pnp_3_finding(wrong: list[str]) -> str:
    start = {variant: curve(built(variant).penalty, np.array([0.0, RANK_LIMIT])).slope_P for variant in VARIANTS}
    rising = [variant for variant, (low, high) in start.items() if high > low]
    falling = [variant for variant, (low, high) in start.items() if high < low]
    return (
        f"The derivatives of {' and '.join(rising)} rise with R, those of {' and '.join(falling)} fall. The paper's "
        f"print contradicts itself where a derivative is not that of the printed loss: {', '.join(wrong)}; at R = 0 "
        f"Iu's is {start['Iu'][0]:g}, O's {start['O'][0]:g} and Ib's {start['Ib'][0]:g}, though the text has Iu's go "
        "to zero with the loss."
    )


# Fig. 5.

SLOPES_LIMIT: Final = 5
POSITIVES: Final = (0, 1, 2, 3)
STEEPNESS: Final = 2.0
"""α in the caption; the experiments use 4."""


def ap_slope(positives: int, at_P: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute ∂L_AP/∂R(i, N) with ``positives`` positives before i."""
    return curve(lambda before_P: SmoothAP.penalty(torch.tensor(float(positives)), before_P), at_P).slope_P


def pnp_5(figure: "Figure") -> Shown:
    """Draw the derivatives of average precision's loss and of PNP-D by R(i, N)."""
    axes = figure.subplots()
    at_P, told_P = np.linspace(0, SLOPES_LIMIT, 251), np.arange(SLOPES_LIMIT + 1.0)
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
    axes.set_xlim(0, SLOPES_LIMIT)
    axes.set_ylim(0, None)
    axes.grid()
    axes.legend()
    ends = np.array([0.0, SLOPES_LIMIT])
    falls = [float(high / low) for high, low in (ap_slope(positives, ends) for positives in POSITIVES)]
    steep = curve(built("Dq", alpha=STEEPNESS).penalty, ends).slope_P
    return Shown(
        finding=(
            f"From R(i, N) = 0 to {SLOPES_LIMIT} the derivative of AP's loss falls to 1/{falls[0]:.0f} with no "
            f"positive before, and to 1/{falls[-1]:.1f} with {POSITIVES[-1]}; that of PNP-Dq with α = {STEEPNESS:g} is "
            f"steeper, from {steep[0]:g} to 1/{steep[0] / steep[1]:.0f} of it."
        ),
        table=TextTable(
            title="",
            header=("derivative of", *(f"at R(i, N) = {entry:g}" for entry in told_P)),
            rows=tuple(rows),
            labels=1,
            notes=("Smooth-AP's and PNP's own functions, by autograd.",),
        ),
    )
