"""The section on the chosen models and the test images.

Shapes: N test images, Q queries, C test classes with queries.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.plan.runs import RunFolder, stored_split
from search.plan.stored import StoredSearch
from search.report.drawing import (
    FAINT,
    Figure,
    Section,
    hover_text,
    loss_looks,
    named_rows,
    of_loss,
    plotted,
    rounded,
    scatter,
)
from search.report.formats import loss_label
from search.report.pairs import class_scores, per_image_metrics
from search.report.results import Comparison
from search.report.rows import Row
from search.report.sections.model_pictures import RankedConfiguration, RankedTest, embedding_map, retrieval_gallery
from search.selection import FOLDER, NAME, ExampleKind, RetrievalFile, ScoredModel, Thumbnails, scored_openings
from search.stages import Role
from search.text_table import NOTHING, TextTable
from trainables.arrays import read_arrays
from trainables.errors import counted
from trainables.files import reading
from trainables.metrics.table import is_retrieval


def models_section(stored: StoredSearch, comparison: Comparison) -> Section:
    """Return the figures of one search's models on the test images; ``comparison`` is that of the search alone.

    ``missing`` lists what cannot be drawn because the test classes are sealed or a file was removed.
    """
    empty = Section(name="models", title="Models on the test images")
    try:
        test = read_rankings(stored.folder, comparison.rows)
    except FileNotFoundError as error:
        return replace(empty, missing=(_removed(error),))
    if test is None:
        sealed = "The test classes are sealed; `holdout test` opens them after the choice."
        return replace(empty, pending=(sealed,))
    missing: list[str] = []
    remarks: list[str] = []
    figures: list[Figure] = []
    for drawn in (_of_pictures(comparison, test, remarks), _of_classes(stored, comparison, test, remarks)):
        try:
            figures += drawn
        except FileNotFoundError as error:
            missing.append(_removed(error))
    return replace(
        empty, sentences=(_introduction(test),), figures=tuple(figures), remarks=tuple(remarks), missing=tuple(missing)
    )


def _introduction(test: RankedTest) -> str:
    models, configurations = sum(len(entry.seeds) for entry in test.configurations), len(test.configurations)
    return (
        f"Rankings of the {counted(len(test.keys), 'image')} of the {len(test.class_names)} test classes by "
        f"{counted(models, 'model')} of {counted(configurations, 'configuration')}, stored when they were scored. This "
        "report did not open the test classes."
    )


def _removed(error: FileNotFoundError) -> str:
    return (
        f"{error.filename} was removed, or is missing because an older version scored the test. Restore the file; "
        "scoring again would count as another opening."
    )


# The stored rankings.


def read_rankings(folder: RunFolder, rows: Sequence[Row]) -> RankedTest | None:
    """Read the first opening of the search in ``folder``; None while the test classes are sealed.

    ``rows`` are the search's rows of the comparison. If the default was chosen, only the tuned row has its models.

    Raises:
        FileNotFoundError: a file is missing; openings by older versions have none.
    """
    openings = scored_openings(folder.test)
    if not openings:
        return None
    opening = openings[0]
    path = folder.path / "test" / opening.id
    file = path / opening.scores[0].per_image
    class_names = stored_split(folder).test
    with reading(file):
        keys_N, labels_N = read_arrays(file, "keys", "labels").values()
        if labels_N.shape != keys_N.shape or not set(labels_N.tolist()).issubset(range(len(class_names))):
            raise ValueError(f"{len(keys_N)} keys, and labels of other images or classes")
    tuned = {(row.loss, row.number) for row in rows if row.role is Role.TUNED}
    shown = [row for row in rows if row.role is Role.TUNED or (row.loss, row.number) not in tuned]
    models_of: dict[tuple[str, int | None], list[ScoredModel]] = {}
    for model in opening.scores:
        models_of.setdefault((model.loss, model.source_trial), []).append(model)
    return RankedTest(
        folder=path,
        keys=tuple(keys_N.tolist()),
        labels_N=labels_N,
        class_names=class_names,
        configurations=tuple(
            _configuration(row, models_of[row.loss, row.number], path / FOLDER, labels_N)
            for row in shown
            if (row.loss, row.number) in models_of
        ),
    )


def _configuration(
    row: Row, models: Sequence[ScoredModel], folder: Path, labels_N: NDArray[np.int64]
) -> RankedConfiguration:
    first, *_ = files = [RetrievalFile.read(folder / model.per_image) for model in models]
    confused = sum((_confused(file, labels_N) for file in files), Counter[tuple[int, int]]())
    return RankedConfiguration(row=row, seeds=tuple(model.seed for model in models), first=first, confused=confused)


def _confused(file: RetrievalFile, labels_N: NDArray[np.int64]) -> Counter[tuple[int, int]]:
    if not file.neighbours_QK.size:
        return Counter()
    own_Q, found_Q = labels_N[file.queries_Q], labels_N[file.neighbours_QK[:, 0]]
    wrong_Q = own_Q != found_Q
    return Counter(zip(own_Q[wrong_Q].tolist(), found_Q[wrong_Q].tolist(), strict=True))


def _of_pictures(comparison: Comparison, test: RankedTest, remarks: list[str]) -> Iterator[Figure]:
    """Yield the figures of test images; append to ``remarks`` what there cannot be."""
    thumbnails = Thumbnails.read(test.folder / NAME)
    if thumbnails.metric is None:
        remarks.append("Queries are not shown: no metric of the test has a score per image (metrics.test).")
    elif not thumbnails.queries:
        remarks.append("Queries are not shown: no test class has two images.")
    for kind in ExampleKind:
        if gallery := retrieval_gallery(comparison, test, thumbnails, kind):
            yield gallery
    for entry in test.tuned:
        if found := embedding_map(comparison, test, thumbnails, entry):
            yield found


# The hardest classes and their confusions.


def _of_classes(stored: StoredSearch, comparison: Comparison, test: RankedTest, remarks: list[str]) -> Iterator[Figure]:
    """Yield the figure of the hardest classes; append to ``remarks`` why there is none."""
    known = per_image_metrics([stored.folder])
    metrics = (comparison.objective, *comparison.test_metrics)
    metric = next((name for name in metrics if is_retrieval(name) and name in known), None)
    if metric is None:
        remarks.append("Classes are not shown: no metric of the test has a score per image (metrics.test).")
        return
    scores = class_scores(stored.folder, metric)
    values: dict[str, NDArray[np.float64]] = {}
    for entry in test.tuned:
        of_row = [
            found.sums_C / found.counts_C
            for found in scores
            if (found.loss, found.source_trial) == (entry.row.loss, entry.row.number)
        ]
        if of_row:
            values[loss_label(comparison, entry.row.search, entry.row.loss)] = np.mean(of_row, axis=0)
    if values:
        yield hardest(comparison, metric, test, scores[0].labels_C.tolist(), values)


SHOWN = 10
OTHERS = 3
"""Number of confused classes in the table."""
LONGEST = 24
"""Longest class name in the figure, in characters."""


def hardest(
    comparison: Comparison,
    metric: str,
    test: RankedTest,
    asked: Sequence[int],
    values: Mapping[str, NDArray[np.float64]],
) -> Figure:
    """Plot the classes with the lowest mean ``metric`` of the tuned losses.

    The ``values`` [C] of each loss are in the order of ``asked``, the numbers of the classes that have queries.
    """
    mean_C = np.mean(list(values.values()), axis=0)
    worst = np.argsort(mean_C, kind="stable")[:SHOWN].tolist()
    looks, places = loss_looks(comparison), list(range(len(worst)))
    confusions = {at: _confusions(test, asked[at]) for at in worst}
    class_name = {at: test.class_names[asked[at]] for at in worst}
    names = [
        "<br>→ ".join([_short(class_name[at]), *(f"{_short(name)} {n}" for name, n in confusions[at][:1])])
        for at in worst
    ]
    traces = [
        scatter(
            label,
            "markers",
            [rounded(value) for value in of_loss_C[worst].tolist()],
            places,
            marker={"color": looks[label][0], "symbol": looks[label][1], "size": 8},
            **of_loss(label),
            **hover_text([f"{class_name[at]}, {label}: {of_loss_C[at]:.4f}" for at in worst]),
        )
        for label, of_loss_C in values.items()
    ]
    means = [rounded(value) for value in mean_C[worst].tolist()]
    mark = {"symbol": "line-ns-open", "size": 14, "color": FAINT}
    layout = {**named_rows(names, f"{metric}, tuned (→ most frequent confusion)"), "margin": {}}
    name, first = class_name[worst[0]], confusions[worst[0]][:1]
    confused_with = ", most often confused with {} ({} of its queries)".format(*first[0]) if first else ""
    return Figure(
        name="hardest",
        title="The hardest classes",
        finding=(
            f"The hardest class is {name} with a mean {metric} of {mean_C[worst[0]]:.4f} over the tuned "
            f"losses{confused_with}; the mean of all {len(mean_C)} test classes is {mean_C.mean():.4f}."
        ),
        picture=plotted([*traces, scatter("mean", "markers", means, places, marker=mark)], layout, height=500),
        table=TextTable(
            header=("class", f"mean {metric}", *values, "confused with"),
            rows=tuple(
                (
                    class_name[at],
                    f"{mean_C[at]:.4f}",
                    *(f"{of_loss_C[at]:.4f}" for of_loss_C in values.values()),
                    ", ".join(map(" ".join, confusions[at])) or NOTHING,
                )
                for at in worst
            ),
            notes=("Confused with: classes of wrong nearest neighbours, in percent of all tuned models' queries.",),
        ),
    )


def _confusions(test: RankedTest, label: int) -> list[tuple[str, str]]:
    """Return the most frequent classes of wrong nearest neighbours, with their share of all tuned models' queries."""
    queries = int((test.labels_N[test.tuned[0].first.queries_Q] == label).sum())
    asked = queries * sum(len(entry.seeds) for entry in test.tuned)
    found = sum((entry.confused for entry in test.tuned), Counter[tuple[int, int]]())
    wrong = Counter({other: count for (own, other), count in found.items() if own == label})
    return [(test.class_names[other], f"{count / asked:.0%}") for other, count in wrong.most_common(OTHERS)]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}…{text[-LONGEST // 2 + 1 :]}"
