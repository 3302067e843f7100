"""Structures of a faiss index of vectors of length 1, by inner product; the approximate ones are tuned to a recall.

Shapes: N indexed vectors, D dimensions, Q queries, K neighbours.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isqrt
from threading import Lock
from types import ModuleType
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trainables.inference.index.description import IndexKind, MeasuredRecall
from trainables.mistakes import Mistakes

EXACT_UP_TO = 1_000_000
"""Largest number of images for which the default kind is exact."""

TARGET_RECALL = 0.99
AT = 10
SAMPLE = 1_000
"""Number of the index's images, drawn at random, with which the recall is measured."""

TOLERANCE = 1e-5
"""Slack for float32 rounding: a neighbour whose similarity is smaller by less than this counts as found."""

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]


def faiss() -> ModuleType:
    """Import faiss on first use; its stubs are too incomplete for type checking."""
    import faiss

    return faiss


class Approximate(ABC):
    """A structure that compares a query with only some of the vectors.

    The width is faiss's search parameter: larger values find more neighbours. It is set on the index rather than passed
    to each search, because ``faiss.contrib.torch_utils``, which pytorch-metric-learning imports, replaces faiss's
    search by one without parameters.
    """

    parameter: ClassVar[str]
    narrowest: ClassVar[int]

    @abstractmethod
    def built(self, vectors_ND: Vectors) -> Any:
        """Build an index of the vectors."""

    @abstractmethod
    def widest(self, index: Any) -> int:
        """Return the largest width to try."""

    @abstractmethod
    def set_width(self, index: Any, width: int) -> None:
        """Set the width of all searches, including those of the saved index."""


class InvertedLists(Approximate):
    """Vectors in 4·√N lists around k-means centres; the lists nearest to a query are searched.

    k-means is trained on 64 vectors per list: faiss's guidelines advise 4·√N to 16·√N lists, and 30 to 256 training
    vectors for each.
    """

    parameter, narrowest = "nprobe", 1

    def built(self, vectors_ND: Vectors) -> Any:
        size, dimensions = vectors_ND.shape
        lists = max(1, min(4 * isqrt(size), size // 39))  # faiss's k-means warns below 39 vectors per list
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
    """A hierarchical navigable small-world graph (Malkov & Yashunin 2020) with 32 links per vector."""

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
    """Return the kind asked for, or the default for this number of images.

    Raises:
        Mistakes: the kind is unknown, or there are too few images to measure its recall.
    """
    if asked is None:
        return IndexKind.EXACT if images <= EXACT_UP_TO else IndexKind.IVF
    if asked not in list(IndexKind):
        raise Mistakes(f"kind is {asked!r}; give one of {', '.join(IndexKind)}.")
    if asked in APPROXIMATE and images <= AT:
        raise Mistakes(
            f"The recall of an index of the kind {asked} is measured on {AT} neighbours, and {images} images have "
            "fewer; leave the kind out for an exact search."
        )
    return IndexKind(asked)


def built_index(vectors_ND: Vectors, kind: IndexKind) -> tuple[Any, MeasuredRecall | None]:
    """Build a faiss index of vectors of length 1; return it with its measured recall, or None for an exact one."""
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


_TAGS = {IndexKind.EXACT: b"IxFI", IndexKind.IVF: b"IwFl", IndexKind.HNSW: b"IHNf"}
"""First bytes of faiss's files, by kind; faiss chooses the code that reads a file by them."""

_READING = Lock()


def read_index(file: IO[bytes], size: int, kind: IndexKind, recall: MeasuredRecall | None) -> Any:
    """Read a faiss index of ``kind`` from a file of ``size`` bytes and set its width.

    faiss trusts much of what a file says about itself. So its structure is compared with :func:`built_index`'s, no
    allocation may exceed ``size``, and the rows in inverted lists, which faiss does not check, must exist.

    Raises:
        ValueError: it is an index of another structure, or its parts contradict each other.
        RuntimeError: faiss cannot read it.
        MemoryError: it needs more memory than there is.
    """
    if file.read(4) != _TAGS[kind]:
        raise ValueError(f"it is not an index of the kind {kind}")
    file.seek(0)
    with _limited(size):
        index = faiss().read_index(faiss().PyCallbackIOReader(file.read))
    inner, rows = _inner(index, kind)
    if not isinstance(inner, faiss().IndexFlat) or inner.ntotal != rows or inner.d != index.d:
        raise ValueError("its vectors are not stored as this version stores them")
    if any(part.metric_type != faiss().METRIC_INNER_PRODUCT for part in (index, inner)):
        raise ValueError("its similarity is not the inner product")
    if kind is IndexKind.IVF and not _rows_exist(index):
        raise ValueError("its lists name rows that do not exist")
    if recall is not None:
        structure = APPROXIMATE[kind]
        if not structure.narrowest <= recall.value <= structure.widest(index):
            raise ValueError(f"{structure.parameter} is {recall.value}")
        structure.set_width(index, recall.value)
    return index


@contextmanager
def _limited(size: int) -> Iterator[None]:
    """Limit the bytes that faiss allocates for a vector and the parts that it reads to ``size``; then restore both."""
    library = faiss()
    with _READING:  # the limits are the process's
        limits = library.get_deserialization_vector_byte_limit(), library.get_deserialization_loop_limit()
        library.set_deserialization_vector_byte_limit(size)
        library.set_deserialization_loop_limit(size)
        try:
            yield
        finally:
            library.set_deserialization_vector_byte_limit(limits[0])
            library.set_deserialization_loop_limit(limits[1])


def _inner(index: Any, kind: IndexKind) -> tuple[Any, int]:
    """Return the flat index inside ``index``, of its vectors or of its lists' centres, and the rows it must have."""
    if kind is IndexKind.EXACT:
        return index, index.ntotal
    inner, rows = (index.quantizer, index.nlist) if kind is IndexKind.IVF else (index.storage, index.ntotal)
    return faiss().downcast_index(inner), rows


def _rows_exist(index: Any) -> bool:
    """Return True if the inverted lists name each row of ``index`` once."""
    lists = index.invlists
    rows = [
        faiss().rev_swig_ptr(lists.get_ids(number), lists.list_size(number)).copy()
        for number in range(index.nlist)
        if lists.list_size(number)
    ]
    return bool(rows) and np.array_equal(np.sort(np.concatenate(rows)), np.arange(index.ntotal))


def search_index(
    index: Any, kind: IndexKind, recall: MeasuredRecall | None, queries_QD: Vectors, k: int
) -> tuple[Vectors, Rows]:
    """Return similarities and rows, [Q, K], the most similar first.

    If an approximate index finds fewer than ``k``, its width is increased for these queries; neighbours still missing
    have row −1. Not thread-safe.
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
    """Return a function that sets a width and measures recall@10 on a sample of the vectors, each without itself."""
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
    """Return the similarities [Q, 10] of the nearest rows other than the query's own, −∞ for missing ones."""
    known_QK = np.where((rows_QK < 0) | (rows_QK == own_Q[:, None]), -np.inf, similarities_QK)
    return -np.sort(-known_QK, axis=1)[:, :AT]


def _smallest(recall_of: Callable[[int], float], narrowest: int, widest: int) -> int:
    """Return the smallest width that reaches the target, by doubling and bisection; ``widest`` if none does."""
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
