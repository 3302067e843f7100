"""The choice where a small network learns as a whole from random weights: `python -m benchmarks.search.from_scratch`.

``from_scratch.json`` has 16 searches without pruning: four divisions of drawn characters (40 to train, 60 others to
test) × four losses, each with trial 0 and 15 points of the product's ``qmc`` sampler, learning rates from 1e-4 to 1e-2.
Each configuration trained once for 8 epochs (``convnet``, 32 pixels) on 36 characters, validated by the other four, and
on each half, validated by the other half, both with half of the training images in the gallery: the values of the
classes (``split``, ``halves``) and the mean MAP@R of the test characters.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from search.difference import Basis
from search.records import Confirmation, choose

CELLS = Path(__file__).parent.parent / "tables" / "from_scratch.json"
BASIS = Basis(objective="map_at_r", validation="", confirmation="", better_by=1.0)
FINALISTS = 3
HALVES = {"first": slice(20), "second": slice(20, None)}

Floats = NDArray[np.float64]
Row = Mapping[str, Any]


def values(row: Row, on: str) -> Floats:
    """Return the values of the classes that validate: those of the fixed split, of a half, or of both halves."""
    if on == "split":
        return np.array(row["split"] if row["split"] else [math.nan])
    return np.array(row["halves"])[HALVES.get(on, slice(None))]


def chosen(rows: Sequence[Row], searched_on: str, confirmed_on: str) -> int:
    """Return the product's choice among the default and the best finalists."""
    searched = [float(np.nan_to_num(values(row, searched_on).mean(), nan=-1)) for row in rows]
    finalists = {0, *sorted(range(len(rows)), key=lambda number: -searched[number])[:FINALISTS]}
    confirmed = {}
    for number in finalists:
        classes = values(rows[number], confirmed_on)
        confirmed[number] = Confirmation(
            number=number, params={"number": number}, searched=(searched[number],), values=(float(classes.mean()),),
            classes={str(place): float(value) for place, value in enumerate(classes)}, best_epochs=(), failed=0,
        )  # fmt: skip
    choice = choose(confirmed, {"number": 0}, BASIS)
    assert choice is not None, "every training has values"
    return choice[0].number


def main() -> None:
    """Print what the ways to validate are worth."""
    cells: dict[str, list[Row]] = json.loads(CELLS.read_text())
    tests = {name: np.array([100 * (row["test"] or 0.0) for row in rows]) for name, rows in cells.items()}
    best = np.mean([test.max() - test[0] for test in tests.values()])
    grid = Table(title=f"{len(cells)} searches from random weights; the best configurations gain {best:+.1f}")
    for column in ("search", "correlation with the test", "gain", "lose > 1", "worst"):
        grid.add_column(column, justify="left" if column == "search" else "right")
    ways = {
        "four classes, confirmed on halves": [("split", "halves")],
        "half of the classes": [(half, half) for half in HALVES],
        "two folds": [("halves", "halves")],
    }
    for words, places in ways.items():
        gains, correlations = [], []
        for name, rows in cells.items():
            for searched_on, confirmed_on in places:
                means = [np.nan_to_num(values(row, searched_on).mean(), nan=-1) for row in rows]
                correlations.append(spearmanr(means, tests[name]).statistic)
                gains.append(tests[name][chosen(rows, searched_on, confirmed_on)] - tests[name][0])
        gained = np.array(gains)
        grid.add_row(
            words, f"{np.mean(correlations):.2f}", f"{gained.mean():+.1f}", f"{(gained < -1).mean():.0%}",
            f"{gained.min():+.1f}",
        )  # fmt: skip
    Console(width=120, highlight=False).print(grid)


if __name__ == "__main__":
    main()
