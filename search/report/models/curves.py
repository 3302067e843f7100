"""Numbers from the similarities of pairs and from curves of precision.

Shapes: L recall levels, B bins of cosine similarity, P points of a curve.
"""

import numpy as np
from numpy.typing import NDArray

from search.selection.scores.retrieval_file import EDGES

Counts = NDArray[np.int64]
Values = NDArray[np.float64]


def auc(same_B: Counts, other_B: Counts) -> float:
    """The area under the ROC curve: how probably a pair of one class is more similar than a pair of two.

    Pairs of one bin count half (Fawcett 2006, An introduction to ROC analysis). NaN without pairs of both kinds.
    """
    pairs = float(same_B.sum()) * float(other_B.sum())
    below_B = np.cumsum(other_B) - other_B
    return float((same_B * (below_B + other_B / 2)).sum() / pairs) if pairs else float("nan")


def true_positive_rates(same_B: Counts, other_B: Counts, false_P: Values) -> Values:
    """The ROC curve: which part of the pairs of one class is accepted where ``false_P`` of those of two are.

    Between the bins' edges it is a straight line. NaN without pairs of both kinds.
    """
    if not same_B.sum() or not other_B.sum():
        return np.full(len(false_P), np.nan)
    accepted, wrongly = (
        np.concatenate(([0.0], np.cumsum(counts[::-1]) / counts.sum())) for counts in (same_B, other_B)
    )
    # where a rate of errors is reached at several similarities, the curve is vertical; its top is there at no more cost
    last = np.append(wrongly[1:] != wrongly[:-1], True)
    return np.interp(false_P, wrongly[last], accepted[last])


def distance_quantile(counts_B: Counts, share: float) -> float:
    """The cosine distance (1 − similarity, 0 to 2) below which ``share`` of the pairs lie; NaN without pairs."""
    if not counts_B.sum():
        return float("nan")
    below = np.concatenate(([0.0], np.cumsum(counts_B[::-1]) / counts_B.sum()))
    place = int(np.searchsorted(below, share))
    distances = 1 - EDGES[::-1]
    low, high = below[place - 1], below[place]
    between = (share - low) / (high - low)
    return float(distances[place - 1] + between * (distances[place] - distances[place - 1]))


def overlap(same_B: Counts, other_B: Counts) -> float:
    """The part that two distributions share: Σ min(p, q), 0 where they are apart and 1 where they are one."""
    if not same_B.sum() or not other_B.sum():
        return float("nan")
    return float(np.minimum(same_B / same_B.sum(), other_B / other_B.sum()).sum())
