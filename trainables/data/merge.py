"""Merged classes: every m consecutive training classes are learned as one class that has several centres.

Li et al. (PNP, Tables 6 and 7) merge three. Validation and test keep their own classes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def merged_labels(labels_N: "Tensor", merge: int) -> "Tensor":
    """The labels 0 … C−1 of N images after every ``merge`` consecutive classes became one; the last may be smaller."""
    return labels_N // merge


def merged_sizes(class_sizes: Sequence[int], merge: int) -> list[int]:
    """How many images each merged class has.

    >>> merged_sizes([5, 6, 7, 8, 9], 2)
    [11, 15, 9]
    """
    return [sum(class_sizes[start : start + merge]) for start in range(0, len(class_sizes), merge)]
