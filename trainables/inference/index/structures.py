"""The kinds of a faiss index of vectors of length 1, by inner product; an approximate one is set by measuring it.

Shapes: N indexed vectors, D dimensions, Q queries, K neighbours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import isqrt
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.inference.index.description import IndexKind, MeasuredRecall
from trainables.mistakes import Mistakes

EXACT_UP_TO = 1_000_000
"""So many images are searched one by one unless another kind is asked for."""

TARGET_RECALL = 0.99
AT = 10
SAMPLE = 1_000
"""Of the index's images, drawn at random, with which the recall is measured."""

TOLERANCE = 1e-5
"""Similarities are sums of float32: one that is smaller by this is as good, and equal images may stand for another."""

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


def faiss() -> ModuleType:
    """The library, imported by its first use; its own stubs know too little of it for a type checker."""
    import faiss

    return faiss


class Approximate(ABC):
    """How vectors are laid out so that not all of them are compared with a query.

    A width is faiss's parameter of how far is looked: wider finds more. It is set on the index, and not given with each
    search: ``faiss.contrib.torch_utils``, which pytorch-metric-learning imports, replaces faiss's search by one that
    takes no parameters.
    """

    parameter: ClassVar[str]
    narrowest: ClassVar[int]

    @abstractmethod
    def built(self, vectors_ND: Vectors) -> Any:
        """An index of the vectors."""

    @abstractmethod
    def widest(self, index: Any) -> int:
        """The largest width that is tried."""

    @abstractmethod
    def set_width(self, index: Any, width: int) -> None:
        """Let every search have this width, also of who reads the index's file."""


class InvertedLists(Approximate):
    """The vectors in 4·√N lists around the centres of k-means, of which the nearest are searched.

    k-means sees 64 vectors a list: faiss's guidelines advise 4·√N to 16·√N lists, and 30 to 256 vectors for each.
    """

    parameter, narrowest = "nprobe", 1

    def built(self, vectors_ND: Vectors) -> Any:
        size, dimensions = vectors_ND.shape
        lists = max(1, min(4 * isqrt(size), size // 39))  # fewer than 39 vectors a list make faiss's k-means complain
        index = faiss().IndexIVFFlat(faiss().IndexFlatIP(dimensions), dimensions, lists, faiss().METRIC_INNER_PRODUCT)
        index.train(vectors_ND[np.random.default_rng(0).permutation(size)[: 64 * lists]])
        index.add(vectors_ND)
        return index

    def widest(self, index: Any) -> int:
        lists: int = index.nlist
        return lists

    def set_width(self, index: Any, width: int) -> None:
        index.nprobe = width


class Graph(Approximate):
    """A hierarchical navigable small-world graph (Malkov & Yashunin 2020) with 32 links a vector."""

    parameter, narrowest = "efSearch", AT

    def built(self, vectors_ND: Vectors) -> Any:
        index = faiss().IndexHNSWFlat(vectors_ND.shape[1], 32, faiss().METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = 200
        index.add(vectors_ND)
        return index

    def widest(self, index: Any) -> int:
        return max(self.narrowest, min(int(index.ntotal), 4_096))

    def set_width(self, index: Any, width: int) -> None:
        index.hnsw.efSearch = width


APPROXIMATE: dict[IndexKind, Approximate] = {IndexKind.IVF: InvertedLists(), IndexKind.HNSW: Graph()}


def kind_for(images: int, asked: str | None) -> IndexKind:
    """The kind that was asked for, or what suits so many images.

    Raises:
        Mistakes: there is no such kind, or too few images to measure it.
    """
    if asked is None:
        return IndexKind.EXACT if images <= EXACT_UP_TO else IndexKind.IVF
    if asked not in list(IndexKind):
        raise Mistakes(f"kind is {asked!r}; give one of {', '.join(IndexKind)}.")
    if asked in APPROXIMATE and images <= AT:
        raise Mistakes(
            f"An index of the kind {asked} is measured by its images' {AT} neighbours, and {images} images have fewer; "
            "leave the kind out, and the search is exact."
        )
    return IndexKind(asked)


def built_index(vectors_ND: Vectors, kind: IndexKind) -> tuple[Any, MeasuredRecall | None]:
    """faiss's index of vectors of length 1, and how an approximate one was set; None of an exact one."""
    if kind not in APPROXIMATE:
        exact = faiss().IndexFlatIP(vectors_ND.shape[1])
        exact.add(vectors_ND)
        return exact, None
    structure = APPROXIMATE[kind]
    index = structure.built(vectors_ND)
    recall_of = _recall_by_width(structure, index, vectors_ND)
    width = _smallest(recall_of, structure.narrowest, structure.widest(index))
    return index, MeasuredRecall(
        parameter=structure.parameter,
        value=width,
        recall_at_10=recall_of(width),  # which also leaves the index at this width
        target=TARGET_RECALL,
        images=min(SAMPLE, len(vectors_ND)),
    )


def search_index(
    index: Any, kind: IndexKind, recall: MeasuredRecall | None, queries_QD: Vectors, k: int
) -> tuple[Vectors, Rows]:
    """Similarities and rows, [Q, K], the most similar first.

    Where an approximate index finds fewer than ``k``, it is searched wider; what is missing then has row −1. Not to be
    called by two threads at once.
    """
    similarities_QK, rows_QK = index.search(queries_QD, k)
    if recall is None or not (rows_QK[:, -1] < 0).any():
        return similarities_QK, rows_QK
    structure = APPROXIMATE[kind]
    width, widest = recall.value, structure.widest(index)
    try:
        while width < widest and (short_Q := rows_QK[:, -1] < 0).any():
            width = min(2 * width, widest)
            structure.set_width(index, width)
            similarities_QK[short_Q], rows_QK[short_Q] = index.search(queries_QD[short_Q], k)
    finally:
        structure.set_width(index, recall.value)
    return similarities_QK, rows_QK


def _recall_by_width(structure: Approximate, index: Any, vectors_ND: Vectors) -> Callable[[int], float]:
    """Sets a width and gives its recall@10 on a sample of the vectors, each of which is no neighbour of its own."""
    rows_Q = np.random.default_rng(0).permutation(len(vectors_ND))[:SAMPLE]
    queries_QD = vectors_ND[rows_Q]
    exact_QK, exact_rows_QK = faiss().knn(queries_QD, vectors_ND, AT + 1, metric=faiss().METRIC_INNER_PRODUCT)
    tenth_Q = _others(exact_QK, exact_rows_QK, rows_Q)[:, -1]

    def recall(width: int) -> float:
        structure.set_width(index, width)
        found_QK, found_rows_QK = index.search(queries_QD, AT + 1)
        return float((_others(found_QK, found_rows_QK, rows_Q) >= tenth_Q[:, None] - TOLERANCE).mean())

    return recall


def _others(similarities_QK: Vectors, rows_QK: Rows, own_Q: Rows) -> Vectors:
    """The similarities of the ten nearest without the query's own row, [Q, 10], −∞ where fewer were found."""
    known_QK = np.where((rows_QK < 0) | (rows_QK == own_Q[:, None]), -np.inf, similarities_QK)
    return -np.sort(-known_QK, axis=1)[:, :AT]


def _smallest(recall_of: Callable[[int], float], narrowest: int, widest: int) -> int:
    """The smallest width that reaches the target, found by doubling, then by halving; the widest where none does."""
    low, width = narrowest - 1, narrowest
    while recall_of(width) < TARGET_RECALL:
        if width == widest:
            return width
        low, width = width, min(2 * width, widest)
    while width - low > 1:
        middle = (low + width) // 2
        if recall_of(middle) < TARGET_RECALL:
            low = middle
        else:
            width = middle
    return width
