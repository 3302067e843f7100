"""What is stored of how a model ranks the test images."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainables.data.store.spec import StoreSpec
from trainables.files import reading
from trainables.spec import TrialSpec

# What is to be scored: a trained model, and the images and metrics.


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A model (``checkpoint``, trained as ``spec`` says), the images, the metrics, and a file for per-image results.

    Where classes validate among each other, ``gallery`` says how many at once: the objective is measured in galleries
    of that size too. None where they validate among training images as well.

    ``seed`` is that of the final training, which the models of its ``fold``s share (None without folds).
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    spec: TrialSpec
    checkpoint: str
    images: StoreSpec
    metrics: tuple[str, ...]
    gallery: int | None
    per_image: str


# Which test images stand for all: chosen by the SHA-256 of their names, so that every model has the same ones.
#
# Shapes: N test images, S sampled images.

CLASSES = 20
"""So many classes are on a map: more cannot be told apart by their colours."""

IMAGES = 25
"""So many images of a class are on a map."""


def in_digest_order(names: Sequence[str]) -> list[int]:
    """The positions of ``names`` in the order of the names' SHA-256."""
    digests = [hashlib.sha256(name.encode()).digest() for name in names]
    return sorted(range(len(names)), key=digests.__getitem__)


def sampled_queries(keys: Sequence[str], most: int) -> NDArray[np.int32]:
    """The first ``most`` images in the order of their keys' digests, or all; their numbers, ascending."""
    chosen = range(len(keys)) if len(keys) <= most else sorted(in_digest_order(keys)[:most])
    return np.fromiter(chosen, dtype=np.int32)


def map_images(keys: Sequence[str], labels_N: NDArray[np.int64], class_names: Sequence[str]) -> NDArray[np.int32]:
    """The images of a map, ascending: of the first :data:`CLASSES` classes the first :data:`IMAGES` each, by digests.

    ``labels_N`` are positions in ``class_names``.
    """
    order_N = np.asarray(in_digest_order(keys), dtype=np.int64)
    of_class = [order_N[labels_N[order_N] == label][:IMAGES] for label in in_digest_order(class_names)[:CLASSES]]
    return np.sort(np.concatenate(of_class)).astype(np.int32)


# Which queries a report shows with their neighbours: the same for every loss, by rule and not by hand.
#
# Shapes: N test images, Q queries.

EACH = 3
"""So many queries of each kind are shown."""


class Kind(StrEnum):
    """Why a query is shown: by its score, averaged over the tuned models of all losses, or over what tuning changed."""

    BEST = "best"
    MEDIAN = "median"
    WORST = "worst"
    CHANGED = "changed"


class GalleryQuery(NamedTuple):
    """The test image ``row``, and why it is shown."""

    kind: Kind
    row: int


def gallery_queries(
    keys: Sequence[str],
    labels_N: NDArray[np.int64],
    queries_Q: NDArray[np.int32],
    tuned_N: NDArray[np.float64],
    default_N: NDArray[np.float64],
) -> list[GalleryQuery]:
    """Three queries of each kind out of ``queries_Q``, of three classes where there are as many.

    ``tuned_N`` and ``default_N`` are the scores of each image as a query. Best, median and worst are by ``tuned_N``,
    changed most by its distance from ``default_N``; among equals the order is that of the keys' SHA-256. Images whose
    class has no other one, which nobody can find, are left out.
    """
    sizes_C = np.bincount(labels_N)
    found = [int(row) for row in queries_Q if sizes_C[labels_N[row]] > 1]
    found = [found[position] for position in in_digest_order([keys[row] for row in found])]
    if not found:
        return []
    middle = np.median(tuned_N[found])
    change_N = np.abs(tuned_N - default_N)
    chosen: list[GalleryQuery] = []
    for kind, height_N in (
        (Kind.BEST, tuned_N),
        (Kind.WORST, -tuned_N),
        (Kind.MEDIAN, -np.abs(tuned_N - middle)),
        (Kind.CHANGED, change_N),
    ):
        order = sorted(found, key=lambda row: -height_N[row])
        if kind is Kind.CHANGED:
            order = [row for row in order if change_N[row] > 0]
        taken = {query.row for query in chosen}
        order = [row for row in order if row not in taken]
        chosen += [GalleryQuery(kind, row) for row in _of_different_classes(order, labels_N)]
    return sorted(chosen, key=lambda query: list(Kind).index(query.kind))


def _of_different_classes(order: Sequence[int], labels_N: NDArray[np.int64]) -> list[int]:
    firsts = {int(labels_N[row]): row for row in reversed(order)}.values()
    first_ones = [row for row in order if row in set(firsts)]
    others = [row for row in order if row not in set(firsts)]
    return [*first_ones, *others][:EACH]


# What is kept of how one model ranks the test images: enough to draw it without opening the test again.
#
# Shapes: N test images, Q queries, K ranks, S sampled images, D embedding, L recall levels, B bins.

FOLDER = "retrieval"
"""Beside the per-image results, with a file of the same name for each model."""

RANKS = 8
"""So many neighbours of a query are kept."""

MOST_NEIGHBOURS = 100_000
"""Of so many queries neighbours are kept at most: 3.2 MB a model before compression."""

MOST_RANKED = 2_000
"""So many queries are ranked against all images for the curves."""

LEVELS = np.linspace(0, 1, 101)
"""The recalls at which precision is kept."""

EDGES = np.linspace(-1, 1, 1025)
"""The ends of the bins of cosine similarities."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalFile:
    """How one model ranks the test images; images are numbered as in the per-image results.

    ``neighbours_QK`` are the nearest of the queries ``queries_Q``, the first one nearest. ``embeddings_SD``, of length
    1, are those of the images ``sample_S``, the same for every model. The queries ``ranked_Q``, the same for every
    model too, were ranked against all other images: ``precision_L`` is their mean interpolated precision at
    :data:`LEVELS`, NaN where none has another image of its class, and ``same_B`` and ``other_B`` count their pairs of
    one and of two classes by cosine similarity, between :data:`EDGES`.
    """

    queries_Q: NDArray[np.int32]
    neighbours_QK: NDArray[np.int32]
    sample_S: NDArray[np.int32]
    embeddings_SD: NDArray[np.float16]
    ranked_Q: NDArray[np.int32]
    precision_L: NDArray[np.float64]
    same_B: NDArray[np.int64]
    other_B: NDArray[np.int64]

    def to_bytes(self) -> bytes:
        """The content of the file, which is of numpy's kind (npz)."""
        content = io.BytesIO()
        np.savez_compressed(content, **{field.name: getattr(self, field.name) for field in fields(self)})
        return content.getvalue()

    @classmethod
    def read(cls, path: Path) -> "RetrievalFile":
        """The file at ``path``.

        Raises:
            FileNotFoundError: it is gone.
        """
        with reading(path), np.load(path) as content:
            return cls(**{field.name: content[field.name] for field in fields(cls)})
