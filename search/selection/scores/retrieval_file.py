"""What is kept of how one model ranks the test images: enough to draw it without opening the test again.

Shapes: N test images, Q queries, K ranks, S sampled images, D embedding, L recall levels, B bins.
"""

import io
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.files.whole import reading

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
