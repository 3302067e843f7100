"""Which losses differ on the test classes: every pair of a comparison's rows, corrected for their number."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

from search.plan.runs import RunFolder
from search.report.pairs.class_scores import ClassScores, class_scores, per_image_metrics
from search.report.results.pair import Pair
from search.report.results.row import Row, RowKey
from search.report.statistics.bootstrap import paired_bootstrap
from search.report.statistics.holm import holm
from search.selection.role import Role

LEVEL = 0.05


def pairs_of(
    folders: Sequence[RunFolder],
    rows: Sequence[Row],
    metrics: Sequence[str],
    wanted: Sequence[tuple[RowKey, RowKey]],
) -> tuple[list[Pair], list[str]]:
    """The differences of ``wanted``, as far as both rows were tested.

    Args:
        folders: the searches.
        rows: the rows of their comparison.
        metrics: what may be compared; the first that has a score for each image is.
        wanted: pairs of rows.

    Returns:
        the pairs, with Holm's correction over all of them; and sentences on what is left out.
    """
    tested = [row for row in rows if row.test]
    known = {row.key for row in tested}
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
    by_seed = {
        row.key: {
            entry.seed: entry
            for search, entry in scores
            if (search, entry.loss, entry.configuration) == (row.search, row.loss, row.number)
        }
        for row in tested
    }
    return _compared(by_seed, wanted, metric)


def default_and_tuned(rows: Sequence[Row]) -> Iterator[tuple[RowKey, RowKey]]:
    """Each loss tuned against its default, and the tuned losses against each other."""
    tuned = [row for row in rows if row.role is Role.TUNED]
    for row in tuned:
        if row.number != 0:
            yield row.key, row.key._replace(role=Role.DEFAULT)
    yield from itertools.combinations((row.key for row in tuned), 2)


def _compared(
    by_seed: Mapping[RowKey, Mapping[int, ClassScores]], wanted: Sequence[tuple[RowKey, RowKey]], metric: str
) -> tuple[list[Pair], list[str]]:
    some = next(iter(by_seed[wanted[0][0]].values()))
    possible, left_out = [], []
    for first, second in wanted:
        names = f"{' '.join(first)} and {' '.join(second)}"
        shared = by_seed[first].keys() & by_seed[second].keys()
        if not shared:
            left_out.append(f"{names} share no seed of their final trainings and are not paired")
        elif len(shared) == 1:
            left_out.append(f"{names} share one seed alone (final.seeds), which tells nothing, and are not paired")
        elif any(entry.images != some.images for key in (first, second) for entry in by_seed[key].values()):
            left_out.append(f"{names} were not tested on the same images and are not paired")
        else:
            possible.append((first, second))
    sums = {key: {seed: entry.sums_C for seed, entry in found.items()} for key, found in by_seed.items()}
    differences = paired_bootstrap(sums, some.counts_C, possible)
    corrected = holm([difference.p for difference in differences])
    pairs = [
        Pair(
            first=difference.first,
            second=difference.second,
            metric=metric,
            seeds=difference.seeds,
            difference=difference.difference,
            ci95=difference.ci95,
            p=difference.p,
            p_bootstrap=difference.p_bootstrap,
            p_seeds=difference.p_seeds,
            p_holm=p_holm,
            differ=p_holm <= LEVEL,
        )
        for difference, p_holm in zip(differences, corrected, strict=True)
    ]
    return pairs, left_out
