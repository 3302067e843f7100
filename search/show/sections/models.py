"""The section on the chosen models and the test images: neighbours of queries, maps of embeddings, the hardest classes.

Shapes: N test images, Q queries, C test classes with queries, S sampled images, D embedding dimensions; 2 is (x, y).
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.records import FOLDER, THUMBNAILS, ExampleKind, RetrievalFile, Thumbnails
from search.records.records import Records
from search.results.comparison import Comparison, comparison_of
from search.results.pairs import class_scores, per_image_metrics
from search.results.rows import Row
from search.show.comparison_tables import loss_label, row_label, shown_rows
from search.show.drawing import (
    COLOURS,
    MARKS,
    Figure,
    Photograph,
    Section,
    ShownQuery,
    hover_text,
    plotted,
    rounded,
    scatter,
)
from search.stages import Role
from search.text_table import NOTHING, TextTable
from trainables.common.errors import counted
from trainables.common.files import read_arrays, reading
from trainables.metrics import is_retrieval, score_text


def models_section(search: Records) -> Section:
    """Return the figures of one search's models on the test images.

    ``missing`` lists what cannot be drawn because the test classes are sealed or a file was removed.
    """
    empty, comparison = Section(name="models", title="Models on the test images"), comparison_of(search)
    if any(opening.vault for opening in search.openings):
        return replace(empty, remarks=("A vault scored the test, so no test image is shown here.",))
    missing: list[str] = []
    remarks: list[str] = []
    figures: list[Figure] = []
    tables: list[TextTable] = []
    test = None
    with _noted(missing):
        test = read_rankings(search, shown_rows(comparison))
    if test is None:
        sealed = "The test classes are sealed; `holdout test` opens them after the choice."
        return replace(empty, missing=tuple(missing), pending=() if missing or comparison.changed else (sealed,))
    with _noted(missing):
        figures += _galleries(comparison, test, remarks)
    tuned = [number for number, (row, _) in enumerate(test.configurations) if row.role is Role.TUNED]
    figures += filter(None, (embedding_map(comparison, test, number) for number in tuned))
    with _noted(missing):
        tables += _hardest(search, comparison, test, remarks)
    return replace(
        empty,
        sentences=(
            f"Rankings of the {counted(len(test.keys), 'image')} of the {len(test.class_names)} test classes by "
            f"{counted(sum(len(files) for _, files in test.configurations), 'model')} of "
            f"{counted(len(test.configurations), 'configuration')}, stored when they were scored. This report did not "
            "open the test classes.",
        ),
        figures=tuple(figures),
        remarks=tuple(remarks),
        tables=tuple(tables),
        missing=tuple(missing),
    )


@contextmanager
def _noted(missing: list[str]) -> Iterator[None]:
    """Append to ``missing`` a file that is not there."""
    try:
        yield
    except FileNotFoundError as error:
        missing.append(
            f"{error.filename} was removed, or is missing because an older version scored the test. Restore the file; "
            "scoring again would count as another opening."
        )


# The stored rankings.


Ranked = tuple[Row, Sequence[RetrievalFile]]
"""A row of the comparison with the rankings by its models, that of the first seed and fold first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedTest:
    """The test images by key and class (``labels_N`` are positions in ``class_names``), and the configurations."""

    folder: Path
    keys: tuple[str, ...]
    labels_N: NDArray[np.int64]
    class_names: tuple[str, ...]
    configurations: tuple[Ranked, ...]

    @property
    def tuned(self) -> tuple[Ranked, ...]:
        return tuple((row, files) for row, files in self.configurations if row.role is Role.TUNED)


def read_rankings(search: Records, rows: Sequence[Row]) -> RankedTest | None:
    """Read the first opening of the search, whose rows are shown; None while the test classes are sealed.

    Raises:
        FileNotFoundError: a file is missing; openings by older versions have none.
    """
    if not search.openings:
        return None
    opening = search.openings[0]
    path = search.folder.path / "test" / opening.id
    file = path / opening.scores[0].per_image
    class_names = search.split.test
    with reading(file):
        keys_N, labels_N = read_arrays(file, "keys", "labels").values()
        if labels_N.shape != keys_N.shape or not set(labels_N.tolist()).issubset(range(len(class_names))):
            raise ValueError(f"{len(keys_N)} keys, and labels of other images or classes")
    files_of: dict[tuple[str, int | None], list[RetrievalFile]] = {}
    for model in opening.scores:
        ranked = RetrievalFile.read(path / FOLDER / model.per_image)
        files_of.setdefault((model.loss, model.source_trial), []).append(ranked)
    return RankedTest(
        folder=path,
        keys=tuple(keys_N.tolist()),
        labels_N=labels_N,
        class_names=class_names,
        configurations=tuple((row, files) for row in rows if (files := files_of.get((row.loss, row.number)))),
    )


def _galleries(comparison: Comparison, test: RankedTest, remarks: list[str]) -> Iterator[Figure]:
    """Yield the queries of each kind with their nearest images; append to ``remarks`` why there are none."""
    thumbnails = Thumbnails.read(test.folder / THUMBNAILS)
    if not thumbnails.queries:
        without_metric = "no metric of the test has a score per image (metrics.test)"
        why = without_metric if thumbnails.metric is None else "no test class has two images"
        remarks.append(f"Queries are not shown: {why}.")
        return
    _, (first, *_) = test.configurations[0]
    place_of = {int(row): place for place, row in enumerate(first.queries_Q)}

    def photograph(image: int, query: int | None = None) -> Photograph:
        right = None if query is None else bool(test.labels_N[image] == test.labels_N[query])
        name = test.class_names[test.labels_N[image]]
        return Photograph(content=thumbnails.pictures.get(image), name=name, right=right)

    for kind in ExampleKind:
        queries = [query.row for query in thumbnails.queries if query.kind is kind]
        if not queries:
            continue
        found = [
            ShownQuery(
                key=test.keys[query],
                photograph=photograph(query),
                neighbours={
                    row_label(comparison, row): tuple(
                        photograph(image, query) for image in files[0].neighbours_QK[place_of[query]].tolist()
                    )
                    for row, files in test.configurations
                },
            )
            for query in queries
        ]
        title, which = f"{kind.capitalize()} queries", f"{kind} value"
        if kind is ExampleKind.CHANGED:
            title, which = "Queries most changed by tuning", "largest change"
        yield Figure(
            name=f"gallery-{kind}",
            title=title,
            finding=f"{counted(len(queries), 'query', 'queries')} with the {which} of {thumbnails.metric}, and the "
            "nearest images by each configuration's first model. Images of a class may look unlike each other.",
            picture=tuple(found),
            wide=True,
        )


FEWEST = 5
"""Smallest number of images that makes a map."""


def embedding_map(comparison: Comparison, test: RankedTest, number: int) -> Figure | None:
    """Plot the sampled images at their places by the first model of a configuration; None with fewer than five.

    The places are those of t-SNE (van der Maaten and Hinton 2008).
    """
    row, (first, *_) = test.configurations[number]
    sample_S, embeddings_SD = first.sample_S, first.embeddings_SD.astype(np.float64)
    if len(sample_S) < FEWEST:
        return None
    from sklearn.manifold import TSNE  # before the limit, which only holds for loaded libraries
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    perplexity = min(30.0, (len(sample_S) - 1) / 3)
    spread = embeddings_SD.shape[1] > 1 and bool(np.ptp(embeddings_SD, axis=0).any())
    made = TSNE(init="pca" if spread else "random", perplexity=perplexity, max_iter=350, random_state=0)
    # Waiting for threads makes short loops ten times slower on a busy machine; identical embeddings have no scale.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        places_S2 = made.fit_transform(embeddings_SD).astype(np.float64)
    labels_S, traces = test.labels_N[sample_S], []
    for place, label in enumerate(np.unique(labels_S).tolist()):
        of_class = np.flatnonzero(labels_S == label)
        x, y = ([rounded(value) for value in places_S2[of_class, axis].tolist()] for axis in (0, 1))
        marker = {
            "color": COLOURS[place % len(COLOURS)],
            "symbol": MARKS[place // len(COLOURS) % len(MARKS)],
            "size": 7,
        }
        keys = [test.keys[image] for image in sample_S[of_class].tolist()]
        traces.append(scatter(test.class_names[label], "markers", x, y, marker=marker, **hover_text(keys)))
    label = row_label(comparison, row)
    hidden = {"showticklabels": False, "zeroline": False}
    return Figure(
        name=f"map-tsne-{number}",
        title=f"t-SNE map of {label}",
        finding=f"{len(sample_S)} images of {counted(len(traces), 'class', 'classes')} by its first model, "
        f"sampled by the SHA-256 of their names; t-SNE, perplexity {perplexity:g}, KL divergence "
        f"{made.kl_divergence_:.2f}.",
        picture=plotted(traces, {"xaxis": hidden, "yaxis": hidden, "showlegend": False}, height=460),
    )


SHOWN = 10
OTHERS = 3
"""Number of confused classes in the table."""


def _hardest(search: Records, comparison: Comparison, test: RankedTest, remarks: list[str]) -> Iterator[TextTable]:
    """Yield the table of the classes with the lowest mean; append to ``remarks`` why there is none."""
    known = per_image_metrics([search])
    metrics = (comparison.objective, *comparison.test_metrics)
    metric = next((name for name in metrics if is_retrieval(name) and name in known), None)
    if metric is None:
        remarks.append("Classes are not shown: no metric of the test has a score per image (metrics.test).")
        return
    scores = class_scores(search, metric)
    values: dict[str, NDArray[np.float64]] = {}
    for row, _ in test.tuned:
        if of_row := scores.get((row.loss, row.number)):
            each_SC = [found.sums_C / found.counts_C for found in of_row]
            values[loss_label(comparison, row.search, row.loss)] = np.mean(each_SC, axis=0)
    if not values:
        return
    asked, mean_C = next(iter(scores.values()))[0].labels_C.tolist(), np.mean(list(values.values()), axis=0)
    yield TextTable(
        title=f"The hardest of {counted(len(mean_C), 'test class', 'test classes')}",
        header=("class", f"mean {metric}", *values, "confused with"),
        rows=tuple(
            (
                test.class_names[asked[at]],
                score_text(metric, mean_C[at]),
                *(score_text(metric, of_loss_C[at]) for of_loss_C in values.values()),
                _confusions(test, asked[at]),
            )
            for at in np.argsort(mean_C, kind="stable")[:SHOWN].tolist()
        ),
        notes=(
            f"Tuned losses, in per cent; the mean of all classes is {score_text(metric, mean_C.mean())}. Confused "
            "with: classes of wrong nearest neighbours, in per cent of all tuned models' queries.",
        ),
    )


def _confusions(test: RankedTest, label: int) -> str:
    """Return the most frequent classes of wrong nearest neighbours, with their share of all tuned models' queries."""
    asked, wrong = 0, Counter[int]()
    for file in (file for _, files in test.tuned for file in files):
        of_class_Q = test.labels_N[file.queries_Q] == label
        asked += int(of_class_Q.sum())
        found_Q = test.labels_N[file.neighbours_QK[of_class_Q, :1].ravel()]
        wrong.update(found_Q[found_Q != label].tolist())
    return ", ".join(f"{test.class_names[n]} {count / asked:.0%}" for n, count in wrong.most_common(OTHERS)) or NOTHING
