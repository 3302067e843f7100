"""Pictures have room for their legends."""

import re

import pytest

from search.report.drawing import drawn, legend_below


def size_of(labels: list[str]) -> tuple[float, float]:
    with drawn("lines", 270) as canvas:
        for number, label in enumerate(labels):
            canvas.axes.plot([0, 1], [0, number], label=label)
        legend_below(canvas.axes, 3)
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', canvas.drawing.svg)
    assert found
    return float(found[1]), float(found[2])


@pytest.mark.parametrize(("letters", "rows"), [(4, 0), (20, 2), (40, 6), (200, 6)])
def test_a_legend_of_long_labels_has_fewer_columns(letters: int, rows: int) -> None:
    """Nine labels in three columns have three rows. Matplotlib warns, which is an error here, if no axes are left."""
    assert size_of(["x" * letters] * 9) == (460, 270 + 14 * rows)
