"""The stored ranking of the test images by a model, and the requests to score one; torch is not imported.

Sampled images are chosen by the SHA-256 of their names, so that every model has the same ones.

Shapes: N test images, Q queries, K ranks, S sampled images, D embedding.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.stages import WHITENED
from trainables.common.files import in_digest_order, read_arrays, reading
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import TrialSpec, UntrainedSpec


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A model to score (``checkpoint``, trained as in ``spec``), the images, the metrics and the per-image file.

    ``seed`` is that of the final training, shared by the models of its folds; ``fold`` is None without folds.
    ``gpu`` is True if the task has a GPU.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    spec: TrialSpec
    checkpoint: str
    images: StoreSpec
    metrics: tuple[str, ...]
    per_image: str
    gpu: bool

    @property
    def row(self) -> dict[str, Any]:
        """The part of its entry in ``test.json`` that follows from the trial."""
        return {name: getattr(self, name) for name in ("loss", "source_trial", "seed", "fold", "per_image")}


@dataclass(frozen=True, kw_only=True)
class BaselineScoring:
    """The request to score the baselines on ``images``; ``spec`` and ``network`` are those of their validation.

    ``whitening`` is the content of the whitening's file.
    """

    spec: UntrainedSpec
    network: str
    whitening: bytes
    images: StoreSpec
    metrics: tuple[str, ...]

    @property
    def gpu(self) -> bool:
        return self.spec.gpu


def baseline_entry(name: str, network: str, whitening_sha256: str) -> dict[str, Any]:
    """Return the part of a baseline's entry in ``test.json`` that follows from its validation."""
    return {
        "name": name,
        "network": network,
        "whitening_sha256": whitening_sha256 if name == WHITENED else None,
        "per_image": f"{name}@baseline.npz",
    }


# The sampled images.

CLASSES = 20
"""The number of classes on a map; the colours of more are hard to distinguish."""

IMAGES = 25
"""The number of images of a class on a map."""


def sampled_queries(keys: Sequence[str], most: int, queries_N: NDArray[np.bool_] | None = None) -> NDArray[np.int32]:
    """Return the numbers of the first ``most`` queries in the order of their keys' digests, ascending.

    With ``queries_N`` only these images are queries.
    """
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
    """Return the images of a map, ascending: the first ``images`` of the first ``classes`` classes, by digests.

    ``labels_N`` are positions in ``class_names``.
    """
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
