"""The colours and marks of every picture, chosen to be told apart in light and dark, and without seeing colours."""

from collections.abc import Sequence
from typing import Final

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
