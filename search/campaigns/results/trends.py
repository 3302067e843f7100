"""Whether a metric rises along an axis of numbers: more proxies, a larger α, more validation classes."""

from collections.abc import Iterator, Sequence

import numpy as np

from search.campaigns.results.differences import Coordinates
from search.campaigns.results.types import Trend
from search.report.pairs.comparable import Comparable
from search.report.results.row import RowKey
from search.report.statistics.contrasts import LEVEL, Estimate
from search.report.statistics.holm import holm

MIN_LABELS = 3
"""Two are a pair."""


def trends(tested: Comparable, coordinates: Coordinates, axes: Sequence[str]) -> list[Trend]:
    """The trends along each of ``axes`` whose labels are all numbers, of rows that were tested on one test set.

    The labels count in their order, not by their size: 1, 3 and 12 proxies are three steps.
    """
    found = [
        (axis, keys, _change(tested, [key for _, key in keys]))
        for axis in axes
        for keys in _lines(tested, coordinates, axis)
    ]
    corrected = holm([estimate.p for _, _, estimate in found])
    return [
        Trend(
            axis=axis,
            labels=tuple(label for label, _ in keys),
            coordinates={name: label for name, label in coordinates[keys[0][1]].items() if name != axis},
            metric=tested.metric,
            change=estimate.value,
            ci95=estimate.ci95,
            p=estimate.p,
            p_holm=p_holm,
            differ=p_holm <= LEVEL,
        )
        for (axis, keys, estimate), p_holm in zip(found, corrected, strict=True)
    ]


def _lines(tested: Comparable, coordinates: Coordinates, axis: str) -> Iterator[list[tuple[str, RowKey]]]:
    """Rows that differ in their number on ``axis`` alone, in its order."""
    if not all(_is_number(found[axis]) for found in coordinates.values()):
        return
    lines: dict[tuple[str, ...], list[tuple[str, RowKey]]] = {}
    for key, found in coordinates.items():
        if key in tested.seeds:
            others = tuple(label for name, label in found.items() if name != axis)
            lines.setdefault(others, []).append((found[axis], key))
    for keys in lines.values():
        if len(keys) >= MIN_LABELS:
            yield sorted(keys, key=lambda entry: float(entry[0]))


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True


def _change(tested: Comparable, keys: Sequence[RowKey]) -> Estimate:
    """What the least-squares line through the rows' means gains from the first to the last."""
    steps = np.arange(len(keys)) - (len(keys) - 1) / 2
    weights = (len(keys) - 1) * steps / (steps**2).sum()
    return tested.rows.contrast(dict(zip(keys, weights.tolist(), strict=True)))
