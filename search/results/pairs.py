"""The scores of an opening of the test classes by class, the differences of pairs of rows, and these as text."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.difference import LEVEL, RowKey
from search.records.records import Records
from search.results.rows import Result, Row, difference_text, interval
from search.results.statistics import MIN_CLASSES, ScoredRows
from search.stages import Role
from trainables.common.errors import counted
from trainables.common.files import array_names, digest_of, read_arrays, reading
from trainables.metrics import is_bounded

# Per-image results of a test opening, summed by test class. Shapes: N images, C test classes.


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """The scores of one training, or of a baseline, summed and counted by class.

    ``labels_C`` are the classes that have queries, and ``images`` is the digest of the queries' names and classes. With
    folds, the sums are the mean over the models of a seed's folds: they share the seed and the test classes, so they
    are one draw.
    """

    labels_C: NDArray[np.int64]
    sums_C: NDArray[np.float64]
    counts_C: NDArray[np.int64]
    images: str


def class_scores(search: Records, metric: str) -> dict[tuple[str, int | None], list[ClassScores]]:
    """Return the scores of each seed in a search's first opening, by loss and trial; none while it is sealed.

    A baseline has no trial. A seed without a model of each fold is left out: the remaining folds may be easier.

    Raises:
        FileNotFoundError: the per-image results are missing.
    """
    models: dict[tuple[str, int | None, int | None], list[ClassScores]] = {}
    for loss, source_trial, seed, path in models_of(search):
        with reading(path):
            labels_N, keys_N, scores_N = read_arrays(path, "labels", "keys", metric).values()
            of_N = ~np.isnan(scores_N)  # only queries have a score, for a metric on a part of the classes only theirs
            if not of_N.any():
                raise ValueError(f"no item has a value of {metric}")
            labels_N, keys_N, scores_N = labels_N[of_N], keys_N[of_N], scores_N[of_N]
            labels_C, classes_N = np.unique(labels_N, return_inverse=True)
            entry = ClassScores(
                labels_C=labels_C,
                sums_C=np.bincount(classes_N, weights=scores_N).astype(np.float64),
                counts_C=np.bincount(classes_N),
                images=digest_of(labels_N.tobytes() + "\n".join(keys_N.tolist()).encode()),
            )
        models.setdefault((loss, source_trial, seed), []).append(entry)
    folds = max(map(len, models.values()), default=0)
    found: dict[tuple[str, int | None], list[ClassScores]] = {}
    for (loss, source_trial, seed), of_seed in models.items():
        if seed is None or len(of_seed) == folds:
            mean = replace(of_seed[0], sums_C=np.mean([entry.sums_C for entry in of_seed], axis=0))
            found.setdefault((loss, source_trial), []).append(mean)
    return found


def per_image_metrics(searches: Iterable[Records]) -> set[str]:
    """Return the metrics for which all models of all searches have per-image scores."""
    found: list[set[str]] = []
    for search in searches:
        for *_, path in models_of(search):
            with reading(path):
                found.append(array_names(path))
    return set.intersection(*found)


def models_of(search: Records) -> Iterator[tuple[str, int | None, int | None, Path]]:
    """Yield loss, trial, seed and per-image file of each model of the first opening, then of each baseline."""
    for opening in search.openings[:1]:
        files = search.folder.path / "test" / opening.id
        for model in opening.scores:
            yield model.loss, model.source_trial, model.seed, files / model.per_image
        for entry in opening.baselines:
            yield entry.name, None, None, files / entry.per_image


class Pair(Result):
    """The difference of two rows on the test classes, the first minus the second.

    Attributes:
        metric: the metric; ``difference`` and ``ci95`` are in its unit.
        seeds: smaller number of seeds of the two rows; a baseline has none.
        ci95: its 95 % interval, which holds for all pairs of the table at once; without 0 if they ``differ``.
        p: two-sided p-value of the pair alone, against other test classes and other seeds.
        p_corrected: ``p`` times the number of pairs (Bonferroni), at most 1.
        differ: True if ``p_corrected`` is at most 5 %.
        within: the margin of equivalence, in the unit of the metric; None without one.
        same: True if ``ci95`` lies between -``within`` and ``within``: two one-sided tests, corrected for all pairs.
            Rows may be the same within a margin and ``differ`` nevertheless.
    """

    first: RowKey
    second: RowKey
    metric: str
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p: float
    p_corrected: float
    differ: bool
    within: float | None = None
    same: bool = False


METHOD = (
    "t-test over test classes and final seeds, with variances shrunk towards those of all rows; it covers neither the "
    "choice of hyperparameters nor the validation split; intervals and p are corrected for all"
)


def pairs_of(
    searches: Sequence[Records],
    rows: Sequence[Row],
    metrics: Sequence[str],
    keys: Iterable[RowKey],
    wanted: Sequence[tuple[RowKey, RowKey]],
    within: float | None,
) -> tuple[list[Pair], list[str]]:
    """Return the differences of the ``wanted`` pairs, corrected for their number, and sentences on what is left out.

    Those of the ``rows`` are compared that were tested and are among the ``keys``, by the first of the ``metrics`` with
    per-image scores. ``within`` is the margin of equivalence as a search file has it, in points.
    """
    by_key = {row.key: row for row in rows if row.test}
    tested = [by_key[key] for key in dict.fromkeys(keys) if key in by_key]
    if not tested:
        return [], []
    opened = [search for search in searches if search.openings]
    try:
        metric = next((name for name in metrics if name in per_image_metrics(opened)), None)
        if metric is None:
            lacking = f"no per-image scores of {' or '.join(metrics)}"
            return [], [f"no pairs: {lacking if metrics else 'the table has no test metric'}"]
        scores = {(search.name, *of): found for search in opened for of, found in class_scores(search, metric).items()}
    except FileNotFoundError as error:
        if any(record.vault for search in opened for record in search.openings):
            return [], ["no pairs: the vault keeps the values of classes, which intervals need"]
        return [], [f"no pairs: the per-image results {error.filename} are missing"]
    by_row = {row.key: scores.get((row.search, row.loss, row.number), []) for row in tested}
    kept, left_out = _on_the_same_images(by_row)
    fixed = {row.key for row in tested if row.role is Role.BASELINE or row.ignores_seeds}
    return list(_differences(kept, fixed, metric, wanted, within)), left_out


def _on_the_same_images(
    by_row: Mapping[RowKey, Sequence[ClassScores]],
) -> tuple[dict[RowKey, Sequence[ClassScores]], list[str]]:
    some_key, (some, *_) = next(iter(by_row.items()))
    if (classes := len(some.counts_C)) < MIN_CLASSES:
        return {}, [f"no pairs: {classes} test classes are too few to estimate their variance; it takes {MIN_CLASSES}"]
    left_out = []
    kept: dict[RowKey, Sequence[ClassScores]] = {}
    for key, models in by_row.items():
        if any(model.images != some.images for model in models):
            left_out.append(f"{' '.join(key)} was not tested on the same items as {' '.join(some_key)}")
        elif len(models) == 1 and key.role is not Role.BASELINE:
            left_out.append(f"{' '.join(key)} has only one seed (final.seeds), so its noise is unknown")
        else:
            kept[key] = models
    return kept, left_out


def _differences(
    by_row: Mapping[RowKey, Sequence[ClassScores]],
    fixed: Collection[RowKey],
    metric: str,
    wanted: Sequence[tuple[RowKey, RowKey]],
    within: float | None,
) -> Iterator[Pair]:
    pairs = [pair for pair in wanted if by_row.keys() >= set(pair)]
    if not pairs:
        return
    sums = {key: np.stack([model.sums_C for model in models]) for key, models in by_row.items() if key not in fixed}
    of_fixed = {key: models[0].sums_C for key, models in by_row.items() if key in fixed}
    scored = ScoredRows(sums, next(iter(by_row.values()))[0].counts_C, of_fixed)
    seeds = {key: len(models) * (key.role is not Role.BASELINE) for key, models in by_row.items()}
    margin = None if within is None else within / 100
    for first, second in pairs:
        estimate = scored.difference(first, second, len(pairs))
        yield Pair(
            first=first,
            second=second,
            metric=metric,
            seeds=min(filter(None, (seeds[first], seeds[second]))),
            difference=estimate.value,
            ci95=estimate.ci95,
            p=estimate.p,
            p_corrected=estimate.p_corrected,
            differ=estimate.differs,
            within=margin,
            same=margin is not None and estimate.is_within(margin),
        )


# Pairs as text.

NO_DIFFERENCE = "no significant difference"


def difference_interval(pair: Pair) -> str:
    """Return the interval of a pair, in the unit of :func:`difference_text`."""
    return interval(pair.ci95, scale=100.0, digits=1) if is_bounded(pair.metric) else interval(pair.ci95)


def difference_with_interval(pair: Pair) -> str:
    """Return the difference of a pair with its interval: ``+5.1 points [1.8, 8.5]``."""
    points = " points" if is_bounded(pair.metric) else ""
    return f"{difference_text(pair.metric, pair.difference)}{points} {difference_interval(pair)}"


def p_value(p: float) -> str:
    """Return a p-value with four digits, more if it is above the level of the tests and would be rounded to it."""
    digits = 4
    while p > LEVEL and round(p, digits) == LEVEL:
        digits += 1
    return "< 0.0001" if p < 0.0001 else f"{p:.{digits}f}"


def verdict(pair: Pair) -> str:
    """Return "higher" or "lower" for the first row of a pair; empty if the difference is not significant.

    With a margin of equivalence, pairs within it are "the same", and those that may be either "undecided".
    """
    if pair.differ:
        higher = "higher" if pair.difference > 0 else "lower"
        return f"{higher}, but {the_same(pair)}" if pair.same else higher
    if pair.within is None:
        return ""
    return the_same(pair) if pair.same else "undecided"


def the_same(pair: Pair) -> str:
    """Return "the same within 1 point", with the margin of equivalence of ``pair``."""
    assert pair.within is not None
    points = f"{100 * pair.within:g}"
    return f"the same within {points} point{'s' * (points != '1')}"


def not_different(pairs: Sequence[Pair]) -> list[str]:
    """Return a sentence on the number of pairs without a significant difference; none if all differ."""
    same = sum(not pair.differ for pair in pairs)
    if not same:
        return []
    count = f"{same} of {len(pairs)} pairs" if same < len(pairs) else f"any of the {len(pairs)} pairs"
    where = "the pair" if len(pairs) == 1 else count
    equal = [pair for pair in pairs if pair.same]
    sentence = f"{NO_DIFFERENCE} in {where} ({pairs[0].metric} on the test classes)"
    if equal:
        are = "is" if len(equal) == 1 else "are"
        sentence += f"; {len(equal)} of {counted(len(pairs), 'pair')} {are} {the_same(equal[0])}"
    return [sentence]
