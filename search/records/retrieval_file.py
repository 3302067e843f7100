"""Rankings, samples and thumbnails of test images, kept for a report, since the images are not read again.

Sampled images are chosen by the SHA-256 of their names, so that every model has the same ones. Torch is not imported.

Shapes: N test images, Q queries, K ranks, S sampled images, D embedding, T thumbnails, G shown queries.
"""

import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import accumulate, chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from search.records.score_files import Scored, ScoredModel
from search.records.selection import Confirmation, Selection
from trainables.common.files import in_digest_order, read_arrays, reading
from trainables.data.dataset import Dataset
from trainables.metrics import is_retrieval

# The sampled images.

CLASSES = 20
"""The number of classes on a map; the colours of more are hard to distinguish."""

IMAGES = 25
"""The number of images of a class on a map."""


def sampled_queries(keys: Sequence[str], most: int, queries_N: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
    """Return the first ``most`` queries, of ``queries_N`` if given, in the order of their keys' digests, ascending."""
    rows = np.arange(len(keys)) if queries_N is None else np.flatnonzero(queries_N)
    if len(rows) > most:
        rows = np.sort(rows[in_digest_order([keys[row] for row in rows.tolist()])[:most]])
    return rows.astype(np.int32)


def map_images(
    keys: Sequence[str],
    labels_N: NDArray[np.int64],
    class_names: Sequence[str],
    classes: int = CLASSES,
    images: int = IMAGES,
) -> NDArray[np.int32]:
    """Return the images of a map, ascending: the first ``images`` of the first ``classes`` classes, by digests."""
    order_N = np.asarray(in_digest_order(keys), dtype=np.int64)
    of_class = [order_N[labels_N[order_N] == label][:images] for label in in_digest_order(class_names)[:classes]]
    return np.sort(np.concatenate(of_class)).astype(np.int32)


# The stored ranking, sufficient for all figures without opening the test again.

FOLDER = "retrieval"
"""A folder next to the per-image results, with a file of the same name for each model."""

RANKS = 8
"""The number of stored neighbours of a query."""

MOST_NEIGHBOURS = 100_000
"""The maximum number of queries with stored neighbours: 3.2 MB per model before compression."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RetrievalFile:
    """The ranking of the test images by one model; images are numbered as in the per-image results.

    Queries and samples are the same ones for every model.

    Attributes:
        queries_Q: the queries with stored neighbours.
        neighbours_QK: their nearest neighbours, nearest first.
        sample_S: the images of the map.
        embeddings_SD: their embeddings, of length 1.
    """

    queries_Q: NDArray[np.int32]
    neighbours_QK: NDArray[np.int32]
    sample_S: NDArray[np.int32]
    embeddings_SD: NDArray[np.float16]

    def to_bytes(self) -> bytes:
        """Return the content of the file, in numpy's npz format."""
        content = io.BytesIO()
        np.savez_compressed(content, **{field.name: getattr(self, field.name) for field in fields(self)})
        return content.getvalue()

    @classmethod
    def read(cls, path: Path) -> "RetrievalFile":
        """Read the file at ``path``."""
        with reading(path):
            return cls(**read_arrays(path, *(field.name for field in fields(cls))))


# The queries that a report shows with their neighbours, the same ones for every loss.

EACH = 3
"""The number of queries of each kind."""


class ExampleKind(StrEnum):
    """The reason for showing a query: its score, averaged over the tuned models, or the change of it by tuning."""

    BEST = "best"
    MEDIAN = "median"
    WORST = "worst"
    CHANGED = "changed"


class GalleryQuery(NamedTuple):
    """A test image and the reason for showing it."""

    kind: ExampleKind
    row: int


def gallery_queries(
    keys: Sequence[str],
    labels_N: NDArray[np.int64],
    queries_Q: NDArray[np.int32],
    tuned_N: NDArray[np.float64],
    default_N: NDArray[np.float64],
) -> list[GalleryQuery]:
    """Choose three queries of each kind out of ``queries_Q``, of different classes if possible.

    ``tuned_N`` and ``default_N`` are the scores of each image as a query. Best, median and worst refer to ``tuned_N``,
    changed to its distance from ``default_N``; ties are ordered by the SHA-256 of the keys. Images without another
    image of their class are left out.
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
        (ExampleKind.BEST, tuned_N),
        (ExampleKind.WORST, -tuned_N),
        (ExampleKind.MEDIAN, -np.abs(tuned_N - middle)),
        (ExampleKind.CHANGED, change_N),
    ):
        taken = {query.row for query in chosen}
        left = [row for row in found if row not in taken and (kind is not ExampleKind.CHANGED or change_N[row] > 0)]
        order = sorted(left, key=lambda row: -height_N[row])
        firsts = {*{int(labels_N[row]): row for row in reversed(order)}.values()}  # of each class
        order.sort(key=lambda row: row not in firsts)
        chosen += [GalleryQuery(kind, row) for row in order[:EACH]]
    return sorted(chosen, key=lambda query: list(ExampleKind).index(query.kind))


# The file of thumbnails.

THUMBNAILS = "thumbnails.npz"
SHORT_SIDE = 64
QUALITY = 80
LIMIT = 3_000_000
"""The maximum size of all thumbnails of a test set in bytes; the first ones requested are stored."""


@dataclass(frozen=True, kw_only=True)
class Thumbnails:
    """WebP files of test images by their numbers, the queries to show, and the metric that chose them, if any."""

    pictures: Mapping[int, bytes]
    queries: tuple[GalleryQuery, ...]
    metric: str | None

    def to_bytes(self) -> bytes:
        """Return the content of the file, in numpy's npz format."""
        content = io.BytesIO()
        np.savez(  # not compressed: WebP is
            content,
            rows_T=np.array([*self.pictures], dtype=np.int32),
            lengths_T=np.array([len(picture) for picture in self.pictures.values()], dtype=np.int32),
            pictures=np.frombuffer(b"".join(self.pictures.values()), dtype=np.uint8),
            query_rows_G=np.array([query.row for query in self.queries], dtype=np.int32),
            query_kinds_G=np.array([str(query.kind) for query in self.queries], dtype=np.str_),
            metric=np.array(self.metric or ""),
        )
        return content.getvalue()

    @classmethod
    def read(cls, path: Path) -> "Thumbnails":
        """Read the file at ``path``."""
        with reading(path):
            content = read_arrays(path)
            pictures, lengths = content["pictures"].tobytes(), content["lengths_T"].tolist()
            kinds = content["query_kinds_G"].tolist()
            if min(lengths, default=0) < 0 or sum(lengths) != len(pictures) or len(pictures) > LIMIT:
                raise ValueError(f"{len(pictures)} bytes of pictures, and lengths of {sum(lengths)}")
            if any(count > EACH for count in Counter(kinds).values()):
                raise ValueError(f"{len(kinds)} queries")
            places = zip(content["rows_T"].tolist(), accumulate(lengths), lengths, strict=True)
            queries = zip(map(ExampleKind, kinds), content["query_rows_G"].tolist(), strict=True)
            return cls(
                pictures={row: pictures[end - length : end] for row, end, length in places},
                queries=tuple(GalleryQuery(kind, row) for kind, row in queries),
                metric=str(content["metric"]) or None,
            )


def make_pictures(images: Iterable[tuple[int, NDArray[np.uint8]]], limit: int = LIMIT) -> dict[int, bytes]:
    """Return numbered images as WebP files with a short side of at most 64 pixels, up to ``limit`` bytes in all."""
    made: dict[int, bytes] = {}
    for number, pixels in images:
        image, content = Image.fromarray(np.ascontiguousarray(pixels)), io.BytesIO()
        scale = min(1, SHORT_SIDE / min(image.size))
        width, height = (max(round(scale * side), 1) for side in image.size)
        image.resize((width, height), Image.Resampling.LANCZOS).save(content, "WEBP", quality=QUALITY)
        limit -= len(content.getvalue())
        if limit < 0:
            break
        made[number] = content.getvalue()
    return made


def _images(
    store: Path, dataset: Dataset, keys: Sequence[str], rows: Iterable[int]
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the number and the pixels of each image of ``rows``; of other items, the image if the data set has one."""
    import torch

    from trainables.data.store.view import Store

    opened = Store(store)
    place_of = {key: place for place, key in enumerate(opened.image_keys)}
    for row in rows:
        is_image = dataset.noun == "images"
        picture = opened.items(torch.tensor([place_of[keys[row]]]))[0] if is_image else dataset.picture(keys[row])
        if picture is not None:
            yield row, picture


def thumbnails_of(store: Path, dataset: Dataset, selection: Selection, scored: Sequence[Scored]) -> Thumbnails:
    """Make thumbnails of opened images: the queries', then those of their neighbours by each configuration."""
    per_image = read_arrays(scored[0].files[scored[0].record.per_image])
    keys, labels_N = per_image["keys"].tolist(), per_image["labels"]
    models: dict[tuple[str, int], list[Scored]] = {}  # of each configuration, that of the first seed and fold first
    for model in scored:
        assert isinstance(model.record, ScoredModel)
        models.setdefault((model.record.loss, model.record.source_trial), []).append(model)
    ranked = [read_arrays(first.files[f"{FOLDER}/{first.record.per_image}"]) for first, *_ in models.values()]
    names = (selection.objective, *selection.test_metrics)
    metric = next((name for name in names if is_retrieval(name) and name in per_image), None)
    queries: list[GalleryQuery] = []
    if metric:
        tuned_N = _mean_score(selection.chosen, metric, models)
        default_N = _mean_score(selection.defaults, metric, models)
        queries = gallery_queries(keys, labels_N, ranked[0]["queries_Q"], tuned_N, default_N)
    rows = [query.row for query in queries]
    places = np.searchsorted(ranked[0]["queries_Q"], rows)
    neighbours = [found["neighbours_QK"][places].T.ravel().tolist() for found in ranked]
    wanted = list(dict.fromkeys([*rows, *chain.from_iterable(zip(*neighbours, strict=True))]))
    pictures = make_pictures(_images(store, dataset, keys, wanted))
    return Thumbnails(pictures=pictures, queries=tuple(queries), metric=metric)


def _mean_score(
    role: Mapping[str, Confirmation], metric: str, models: Mapping[tuple[str, int], Sequence[Scored]]
) -> NDArray[np.float64]:
    """Return the score of each image, averaged over the models of each loss, then over the losses."""
    of_losses: list[NDArray[np.float64]] = []
    for loss, entry in role.items():
        of = models.get((loss, entry.number), ())
        found = [read_arrays(model.files[model.record.per_image], metric)[metric] for model in of]
        of_losses += [np.mean(found, axis=0)] if found else []
    mean_N: NDArray[np.float64] = np.mean(of_losses, axis=0) if of_losses else np.zeros(1)
    return mean_N
