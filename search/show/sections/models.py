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

from search.records import FOLDER, THUMBNAILS, ExampleKind, RetrievalFile, ScoredModel, Thumbnails
from search.records.records import Records
from search.results.comparison import Comparison, comparison_of
from search.results.pairs import class_scores, per_image_metrics
from search.results.rows import Row
from search.show.comparison_tables import loss_label
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
    row_label,
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
        test = read_rankings(search, comparison.rows)
    if test is None:
        sealed = "The test classes are sealed; `holdout test` opens them after the choice."
        return replace(empty, missing=tuple(missing), pending=() if missing or comparison.changed else (sealed,))
    with _noted(missing):
        figures += _galleries(comparison, test, remarks)
    figures += filter(None, (embedding_map(comparison, test, entry) for entry in test.tuned))
    with _noted(missing):
        tables += _hardest(search, comparison, test, remarks)
    return replace(
        empty,
        sentences=(_introduction(test),),
        figures=tuple(figures),
        remarks=tuple(remarks),
        tables=tuple(tables),
        missing=tuple(missing),
    )


def _introduction(test: "RankedTest") -> str:
    models, configurations = sum(len(entry.seeds) for entry in test.configurations), len(test.configurations)
    return (
        f"Rankings of the {counted(len(test.keys), 'image')} of the {len(test.class_names)} test classes by "
        f"{counted(models, 'model')} of {counted(configurations, 'configuration')}, stored when they were scored. This "
        "report did not open the test classes."
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


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedConfiguration:
    """A row of the comparison with the seeds of its models and the ranking by the ``first`` one (first seed and fold).

    ``confused`` counts wrong nearest neighbours of all models by the numbers of the query's and the neighbour's class.
    """

    row: Row
    seeds: tuple[int, ...]
    first: RetrievalFile
    confused: Counter[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedTest:
    """The test images by key and class (``labels_N`` are positions in ``class_names``), and the configurations."""

    folder: Path
    keys: tuple[str, ...]
    labels_N: NDArray[np.int64]
    class_names: tuple[str, ...]
    configurations: tuple[RankedConfiguration, ...]

    @property
    def tuned(self) -> tuple[RankedConfiguration, ...]:
        return tuple(entry for entry in self.configurations if entry.row.role is Role.TUNED)


def read_rankings(search: Records, rows: Sequence[Row]) -> RankedTest | None:
    """Read the first opening of the search; None while the test classes are sealed.

    ``rows`` are the search's rows of the comparison. If the default was chosen, only the tuned row has its models.

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


# Queries with their nearest images.

TITLES = {
    ExampleKind.BEST: "Best queries",
    ExampleKind.MEDIAN: "Median queries",
    ExampleKind.WORST: "Worst queries",
    ExampleKind.CHANGED: "Queries most changed by tuning",
}


def _galleries(comparison: Comparison, test: RankedTest, remarks: list[str]) -> Iterator[Figure]:
    """Yield the queries of each kind with their nearest images; append to ``remarks`` why there are none."""
    thumbnails = Thumbnails.read(test.folder / THUMBNAILS)
    if thumbnails.metric is None:
        remarks.append("Queries are not shown: no metric of the test has a score per image (metrics.test).")
    elif not thumbnails.queries:
        remarks.append("Queries are not shown: no test class has two images.")
    for kind in ExampleKind:
        if queries := [query.row for query in thumbnails.queries if query.kind is kind]:
            yield _gallery(comparison, test, thumbnails, kind, queries)


def _gallery(
    comparison: Comparison, test: RankedTest, thumbnails: Thumbnails, kind: ExampleKind, queries: Sequence[int]
) -> Figure:
    place_of = {int(row): place for place, row in enumerate(test.configurations[0].first.queries_Q)}

    def photograph(image: int, query: int | None = None) -> Photograph:
        right = None if query is None else bool(test.labels_N[image] == test.labels_N[query])
        name = test.class_names[test.labels_N[image]]
        return Photograph(content=thumbnails.pictures.get(image), name=name, right=right)

    found = [
        ShownQuery(
            key=test.keys[query],
            photograph=photograph(query),
            neighbours={
                row_label(comparison, entry.row): tuple(
                    photograph(image, query) for image in entry.first.neighbours_QK[place_of[query]].tolist()
                )
                for entry in test.configurations
            },
        )
        for query in queries
    ]
    ranks = test.configurations[0].first.neighbours_QK.shape[1]
    which = "largest change" if kind is ExampleKind.CHANGED else f"{kind} value"
    return Figure(
        name=f"gallery-{kind}",
        title=TITLES[kind],
        finding=(
            f"Nearest images of the query's class by each configuration's first model, mean over "
            f"{counted(len(queries), 'query', 'queries')} with the "
            f"{which} of {thumbnails.metric}: {', '.join(_rights(comparison, test, found, ranks))}. "
            "Images of a class may look unlike each other."
        ),
        picture=tuple(found),
        wide=True,
    )


def _rights(comparison: Comparison, test: RankedTest, found: Sequence[ShownQuery], ranks: int) -> Iterator[str]:
    """Yield the mean number of images of the query's class for the tuned configurations, then for the defaults."""
    for role in (Role.TUNED, Role.DEFAULT):
        labels = [row_label(comparison, entry.row) for entry in test.configurations if entry.row.role is role]
        counts = [sum(image.right is True for image in query.neighbours[label]) for query in found for label in labels]
        if counts:
            yield f"{np.mean(counts):.1f} of {ranks} for {role} models"


# Maps of embeddings: images of a few test classes in two dimensions.

FEWEST = 5
"""Smallest number of images that makes a map."""


def embedding_map(comparison: Comparison, test: RankedTest, entry: RankedConfiguration) -> Figure | None:
    """Plot the sampled images at their places by the first model of ``entry``; None with fewer than five.

    The places are those of t-SNE (van der Maaten and Hinton 2008).
    """
    sample_S, embeddings_SD = entry.first.sample_S, entry.first.embeddings_SD.astype(np.float64)
    if len(sample_S) < FEWEST:
        return None
    labels_S = test.labels_N[sample_S]
    places_S2, how = _tsne(embeddings_SD)
    traces = []
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
    label = row_label(comparison, entry.row)
    hidden = {"showticklabels": False, "zeroline": False}
    return Figure(
        name=f"map-tsne-{test.configurations.index(entry)}",
        title=f"t-SNE map of {label}",
        finding=f"{len(sample_S)} images of {counted(len(traces), 'class', 'classes')} by its first model, "
        f"sampled by the SHA-256 of their names; {how}.",
        picture=plotted(traces, {"xaxis": hidden, "yaxis": hidden, "showlegend": False}, height=460),
    )


def _tsne(embeddings_SD: NDArray[np.float64]) -> tuple[NDArray[np.float64], str]:
    """Return the places [S, 2], and how they were found."""
    from sklearn.manifold import TSNE  # before the limit, which only holds for loaded libraries
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    perplexity = min(30.0, (len(embeddings_SD) - 1) / 3)
    spread = embeddings_SD.shape[1] > 1 and bool(np.ptp(embeddings_SD, axis=0).any())
    made = TSNE(init="pca" if spread else "random", perplexity=perplexity, max_iter=350, random_state=0)
    # Waiting for threads makes short loops ten times slower on a busy machine; identical embeddings have no scale.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        places_S2 = made.fit_transform(embeddings_SD).astype(np.float64)
    return places_S2, f"t-SNE, perplexity {perplexity:g}, KL divergence {made.kl_divergence_:.2f}"


# The hardest classes and their confusions.

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
    for entry in test.tuned:
        of_row = [
            found.sums_C / found.counts_C
            for found in scores
            if (found.loss, found.source_trial) == (entry.row.loss, entry.row.number)
        ]
        if of_row:
            values[loss_label(comparison, entry.row.search, entry.row.loss)] = np.mean(of_row, axis=0)
    if not values:
        return
    asked, mean_C = scores[0].labels_C.tolist(), np.mean(list(values.values()), axis=0)
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
    queries = int((test.labels_N[test.tuned[0].first.queries_Q] == label).sum())
    asked = queries * sum(len(entry.seeds) for entry in test.tuned)
    found = sum((entry.confused for entry in test.tuned), Counter[tuple[int, int]]())
    wrong = Counter({other: count for (own, other), count in found.items() if own == label})
    return ", ".join(f"{test.class_names[n]} {count / asked:.0%}" for n, count in wrong.most_common(OTHERS)) or NOTHING
