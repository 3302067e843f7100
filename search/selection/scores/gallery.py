"""Which queries a report shows with their neighbours: the same for every loss, by rule and not by hand.

Shapes: N test images, Q queries.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.selection.scores.sample import in_digest_order

EACH = 3
"""So many queries of each kind are shown."""


class Kind(StrEnum):
    """Why a query is shown: by its score, averaged over the tuned models of all losses, or over what tuning changed."""

    BEST = "best"
    MEDIAN = "median"
    WORST = "worst"
    CHANGED = "changed"


class GalleryQuery(NamedTuple):
    """The test image ``row``, and why it is shown."""

    kind: Kind
    row: int


def gallery_queries(
    keys: Sequence[str],
    labels_N: NDArray[np.int64],
    queries_Q: NDArray[np.int32],
    tuned_N: NDArray[np.float64],
    default_N: NDArray[np.float64],
) -> list[GalleryQuery]:
    """Three queries of each kind out of ``queries_Q``, of three classes where there are as many.

    ``tuned_N`` and ``default_N`` are the scores of each image as a query. Best, median and worst are by ``tuned_N``,
    changed most by its distance from ``default_N``; among equals the order is that of the keys' SHA-256. Images whose
    class has no other one, which nobody can find, are left out.
    """
    sizes_C = np.bincount(labels_N)
    found = [int(row) for row in queries_Q if sizes_C[labels_N[row]] > 1]
    found = [found[position] for position in in_digest_order([keys[row] for row in found])]
    if not found:
        return []
    middle = np.median(tuned_N[found])
    change_N = np.abs(tuned_N - default_N)
    chosen: list[GalleryQuery] = []
    for kind, height_N in (
        (Kind.BEST, tuned_N),
        (Kind.WORST, -tuned_N),
        (Kind.MEDIAN, -np.abs(tuned_N - middle)),
        (Kind.CHANGED, change_N),
    ):
        order = sorted(found, key=lambda row: -height_N[row])
        if kind is Kind.CHANGED:
            order = [row for row in order if change_N[row] > 0]
        taken = {query.row for query in chosen}
        order = [row for row in order if row not in taken]
        chosen += [GalleryQuery(kind, row) for row in _of_different_classes(order, labels_N)]
    return sorted(chosen, key=lambda query: list(Kind).index(query.kind))


def _of_different_classes(order: Sequence[int], labels_N: NDArray[np.int64]) -> list[int]:
    firsts = {int(labels_N[row]): row for row in reversed(order)}.values()
    first_ones = [row for row in order if row in set(firsts)]
    others = [row for row in order if row not in set(firsts)]
    return [*first_ones, *others][:EACH]
