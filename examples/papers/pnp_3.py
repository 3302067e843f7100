"""Each variant of PNP and its derivative, beside the derivative that the paper prints.

Shapes: P values of R.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.papers.slopes import curve
from examples.papers.table import Shown
from search.report.drawing import BAD, COLOURS
from search.report.text_table import TextTable
from trainables.losses.ranking import PNP, VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST: Final = 10
TOLD: Final = (0, 1, 10)


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
"""Two derivatives that differ by more are two functions' and no rounding's."""


def built(variant: str, **hyperparameters: float) -> PNP:
    """PNP of a variant, with the defaults that the recipes have where nothing is said."""
    return PNP(num_classes=1, embedding_dim=1, variant=variant, **hyperparameters)


def named(loss: PNP) -> str:
    """The variant, with the one hyperparameter that it has."""
    own = {"Ib": f", b = {loss.bound:g}", "Dq": f", α = {loss.alpha:g}"}
    return f"PNP-{loss.variant}{own.get(loss.variant, '')}"


def pnp_3(figure: "Figure") -> Shown:
    """Above the losses, below their derivatives; what the paper prints for one is dashed where it differs."""
    at_P = np.linspace(0, MOST, 401)
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
            axes.set_xlim(0, MOST)
            axes.set_ylim(0, 1.08 * top)
            axes.grid()
        told = curve(loss.penalty, np.array(TOLD, dtype=np.float64))
        numbers = [f"{entry:.4g}" for entry in (*told.value_P, *told.slope_P)]
        rows.append((named(loss), *numbers, equation, "the same" if apart <= SAME else f"differs by {apart:g}"))
    above[0].set_ylabel("loss f(R)")
    below[0].set_ylabel("derivative f′(R)")
    return Shown(
        finding=_finding(wrong),
        table=TextTable(
            title="",
            header=(
                "variant",
                *(f"f({entry})" for entry in TOLD),
                *(f"f′({entry})" for entry in TOLD),
                "printed f′",
                "against ours",
            ),
            rows=tuple(rows),
            labels=1,
            notes=(f"R from 0 to {MOST}; the derivatives are those of the losses that train, by autograd.",),
        ),
    )


def _finding(wrong: list[str]) -> str:
    start = {variant: curve(built(variant).penalty, np.array([0.0, MOST])).slope_P for variant in VARIANTS}
    rising = [variant for variant, (low, high) in start.items() if high > low]
    falling = [variant for variant, (low, high) in start.items() if high < low]
    return (
        f"The derivatives of {' and '.join(rising)} rise with R, those of {' and '.join(falling)} fall. The paper's "
        f"print contradicts itself where a derivative is not that of the printed loss: {', '.join(wrong)}; at R = 0 "
        f"Iu's is {start['Iu'][0]:g}, O's {start['O'][0]:g} and Ib's {start['Ib'][0]:g}, though the text has Iu's go "
        "to zero with the loss."
    )
