"""Which losses differ on the test classes: every pair of a comparison's rows, corrected for their number."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.plan.runs import RunFolder
from search.report.class_scores import ClassScores, class_scores, per_image_metrics
from search.report.statistics.bootstrap import paired_bootstrap
from search.report.statistics.holm import holm

DEFAULT, TUNED = "default", "tuned"
LEVEL = 0.05

Row = tuple[str, str, str]
"""A row of the comparison: search, loss and role."""


def row_key(row: Mapping[str, Any]) -> Row:
    """What a row of the comparison is called."""
    return row["search"], row["loss"], row["role"]


def pairs_of(
    folders: Sequence[RunFolder],
    rows: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    wanted: Sequence[tuple[Row, Row]],
) -> tuple[list[dict[str, Any]], list[str]]:
    """The differences of ``wanted``, as far as both rows were tested.

    Args:
        folders: the searches.
        rows: the rows of their comparison.
        metrics: what may be compared; the first that has a score for each image is.
        wanted: pairs of rows.

    Returns:
        the pairs, as JSON, with Holm's correction over all of them; and sentences on what is left out.
    """
    tested = [row for row in rows if row["test"]]
    known = {row_key(row) for row in tested}
    wanted = [pair for pair in wanted if known.issuperset(pair)]
    if not wanted:
        return [], []
    opened = [folder for folder in folders if folder.test.exists()]
    try:
        metric = next((name for name in metrics if name in per_image_metrics(opened)), None)
        if metric is None:
            return [], [f"no pairs: there is no score for each image of {' or '.join(metrics)}"]
        scores = [(folder.name, entry) for folder in opened for entry in class_scores(folder, metric)]
    except FileNotFoundError as error:
        return [], [f"no pairs: the per-image results {error.filename} are gone"]
    runs = {
        row_key(row): {
            entry.seed: entry
            for search, entry in scores
            if (search, entry.loss, entry.configuration) == (row["search"], row["loss"], row["number"])
        }
        for row in tested
    }
    return _compared(runs, wanted, metric)


def default_and_tuned(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Row, Row]]:
    """Each loss tuned against its default, and the tuned losses against each other."""
    tuned = [row for row in rows if row["role"] == TUNED]
    for row in tuned:
        if row["number"] != 0:
            yield row_key(row), (row["search"], row["loss"], DEFAULT)
    yield from itertools.combinations(map(row_key, tuned), 2)


def _compared(
    runs: Mapping[Row, Mapping[int, ClassScores]], wanted: Sequence[tuple[Row, Row]], metric: str
) -> tuple[list[dict[str, Any]], list[str]]:
    some = next(iter(runs[wanted[0][0]].values()))
    possible, left_out = [], []
    for first, second in wanted:
        names = f"{' '.join(first)} and {' '.join(second)}"
        shared = runs[first].keys() & runs[second].keys()
        if not shared:
            left_out.append(f"{names} share no seed of their final trainings and are not paired")
        elif len(shared) == 1:
            left_out.append(f"{names} share one seed alone (final.seeds), which tells nothing, and are not paired")
        elif any(entry.images != some.images for key in (first, second) for entry in runs[key].values()):
            left_out.append(f"{names} were not tested on the same images and are not paired")
        else:
            possible.append((first, second))
    sums = {key: {seed: entry.sums_C for seed, entry in found.items()} for key, found in runs.items()}
    pairs = paired_bootstrap(sums, some.counts_C, possible)
    corrected = holm([pair.p for pair in pairs])
    return [
        {
            "first": list(pair.first),
            "second": list(pair.second),
            "metric": metric,
            "seeds": pair.seeds,
            "difference": pair.difference,
            "ci95": list(pair.ci95),
            "p": pair.p,
            "p_bootstrap": pair.p_bootstrap,
            "p_seeds": pair.p_seeds,
            "p_holm": p_holm,
            "differ": p_holm <= LEVEL,
        }
        for pair, p_holm in zip(pairs, corrected, strict=True)
    ], left_out
