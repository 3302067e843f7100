"""The rows of a comparison that can be compared on the test classes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search.plan.runs import RunFolder
from search.report.pairs.class_scores import ClassScores, class_scores, per_image_metrics
from search.report.results.row import Row, RowKey
from search.report.statistics.contrasts import MIN_CLASSES, ScoredRows


@dataclass(frozen=True, kw_only=True)
class Comparable:
    """Rows that were tested by ``metric`` on the same images; ``seeds`` says with how many seeds each."""

    metric: str
    rows: ScoredRows[RowKey]
    seeds: Mapping[RowKey, int]


def comparable_rows(
    folders: Sequence[RunFolder], rows: Sequence[Row], metrics: Sequence[str], keys: Iterable[RowKey]
) -> tuple[Comparable | None, list[str]]:
    """The rows ``keys``, as far as they were tested, and sentences on what is left out.

    Args:
        folders: the searches.
        rows: the rows of their comparison.
        metrics: what may be compared; the first that has a score for each image is.
        keys: the rows that are to be compared with each other.
    """
    by_key = {row.key: row for row in rows if row.test}
    wanted = [by_key[key] for key in dict.fromkeys(keys) if key in by_key]
    if not wanted:
        return None, []
    opened = [folder for folder in folders if folder.test.exists()]
    try:
        metric = next((name for name in metrics if name in per_image_metrics(opened)), None)
        if metric is None:
            lacking = f"there is no score for each image of {' or '.join(metrics)}"
            return None, [f"no pairs: {lacking if metrics else 'the table has no metric of the test'}"]
        scores = [(folder.name, entry) for folder in opened for entry in class_scores(folder, metric)]
    except FileNotFoundError as error:
        return None, [f"no pairs: the per-image results {error.filename} are gone"]
    by_row = {
        row.key: [
            entry
            for search, entry in scores
            if (search, entry.loss, entry.configuration) == (row.search, row.loss, row.number)
        ]
        for row in wanted
    }
    return _on_the_same_images(by_row, metric)


def _on_the_same_images(
    by_row: Mapping[RowKey, Sequence[ClassScores]], metric: str
) -> tuple[Comparable | None, list[str]]:
    some_key, (some, *_) = next(iter(by_row.items()))
    classes = len(some.counts_C)
    if classes < MIN_CLASSES:
        return None, [f"no pairs: {classes} test classes cannot tell how far others may be; {MIN_CLASSES} can"]
    left_out = []
    kept: dict[RowKey, Sequence[ClassScores]] = {}
    for key, models in by_row.items():
        if any(model.images != some.images for model in models):
            left_out.append(f"{' '.join(key)} was not tested on the same images as {' '.join(some_key)}")
        elif len(models) == 1:
            left_out.append(f"{' '.join(key)} has one seed alone (final.seeds), which tells nothing of its noise")
        else:
            kept[key] = models
    if not kept:
        return None, left_out
    sums = {key: np.stack([model.sums_C for model in models]) for key, models in kept.items()}
    seeds = {key: len(models) for key, models in kept.items()}
    return Comparable(metric=metric, rows=ScoredRows(sums, some.counts_C), seeds=seeds), left_out
