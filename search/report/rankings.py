"""Rankings of the test images by all scored models of a search, and numbers computed from them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.plan.runs import RunFolder, stored_split
from search.report.rows import Row
from search.report.scored import ScoredModel, scored_openings
from search.selection import EDGES, FOLDER, RetrievalFile
from search.stages import Role
from trainables.arrays import read_arrays
from trainables.files import reading

# Numbers from histograms of the similarities of pairs. Shapes: B bins of cosine similarity.

Counts = NDArray[np.int64]


def distance_quantile(counts_B: Counts, share: float) -> float:
    """Return the cosine distance (1 − similarity, 0 to 2) below which ``share`` of the pairs are; NaN without pairs."""
    if not counts_B.sum():
        return float("nan")
    below = np.concatenate(([0.0], np.cumsum(counts_B[::-1]) / counts_B.sum()))
    place = int(np.searchsorted(below, share))
    distances = 1 - EDGES[::-1]
    low, high = below[place - 1], below[place]
    between = (share - low) / (high - low)
    return float(distances[place - 1] + between * (distances[place] - distances[place - 1]))


def overlap(same_B: Counts, other_B: Counts) -> float:
    """Return the overlap of two distributions, Σ min(p, q): 0 if they are disjoint, 1 if they are equal."""
    if not same_B.sum() or not other_B.sum():
        return float("nan")
    return float(np.minimum(same_B / same_B.sum(), other_B / other_B.sum()).sum())


# The stored rankings. Shapes: N test images, L recall levels, B bins of cosine similarity.


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedModel:
    """The part of a model's :class:`~search.selection.retrieval_file.RetrievalFile` that is kept for all models.

    ``confused`` counts wrong nearest neighbours by the numbers of the query's and the neighbour's class.
    """

    seed: int
    precision_L: NDArray[np.float64]
    same_B: NDArray[np.int64]
    other_B: NDArray[np.int64]
    confused: Counter[tuple[int, int]]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedConfiguration:
    """A row of the comparison with its models, and the whole file of the ``first`` one (first seed and fold)."""

    row: Row
    models: tuple[RankedModel, ...]
    first: RetrievalFile

    @property
    def seeds(self) -> list[int]:
        """The seed of each model; the folds of a seed share it."""
        return [model.seed for model in self.models]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankedTest:
    """The test images by key and class (``labels_N`` are positions in ``class_names``), and the configurations."""

    folder: Path
    keys: tuple[str, ...]
    labels_N: NDArray[np.int64]
    class_names: tuple[str, ...]
    configurations: tuple[RankedConfiguration, ...]

    def class_of(self, image: int) -> str:
        """Return the name of an image's class."""
        return self.class_names[self.labels_N[image]]

    @property
    def tuned(self) -> tuple[RankedConfiguration, ...]:
        """The tuned configuration of each loss."""
        return tuple(entry for entry in self.configurations if entry.row.role is Role.TUNED)


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
    configurations = [
        _configuration(row, models_of[row.loss, row.number], path / FOLDER, labels_N)
        for row in shown
        if (row.loss, row.number) in models_of
    ]
    return RankedTest(
        folder=path,
        keys=tuple(keys_N.tolist()),
        labels_N=labels_N,
        class_names=class_names,
        configurations=tuple(configurations),
    )


def _configuration(
    row: Row, models: Sequence[ScoredModel], folder: Path, labels_N: NDArray[np.int64]
) -> RankedConfiguration:
    first, *_ = files = [RetrievalFile.read(folder / model.per_image) for model in models]
    ranked = [
        RankedModel(
            seed=model.seed,
            precision_L=file.precision_L,
            same_B=file.same_B,
            other_B=file.other_B,
            confused=_confused(file, labels_N),
        )
        for model, file in zip(models, files, strict=True)
    ]
    return RankedConfiguration(row=row, models=tuple(ranked), first=first)


def _confused(file: RetrievalFile, labels_N: NDArray[np.int64]) -> Counter[tuple[int, int]]:
    if not file.neighbours_QK.size:
        return Counter()
    own_Q, found_Q = labels_N[file.queries_Q], labels_N[file.neighbours_QK[:, 0]]
    wrong_Q = own_Q != found_Q
    return Counter(zip(own_Q[wrong_Q].tolist(), found_Q[wrong_Q].tolist(), strict=True))
