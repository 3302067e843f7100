"""A metric of every test class, for each configuration.

Shapes: C test classes.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.report.pairs.class_scores import ClassScores
from search.report.results.row import Row, RowKey


def class_values(rows: Sequence[Row], scores: Sequence[ClassScores]) -> Mapping[RowKey, NDArray[np.float64]]:
    """The mean over the seeds of each row's scores, by class [C]; rows without a scored model are left out."""
    found = {
        row.key: [entry.sums_C / entry.counts_C for entry in scores if _is_of(entry, row)]
        for row in rows
        if any(_is_of(entry, row) for entry in scores)
    }
    return {key: np.mean(values, axis=0) for key, values in found.items()}


def _is_of(entry: ClassScores, row: Row) -> bool:
    return (entry.loss, entry.configuration) == (row.loss, row.number)
