"""An index of images, queried for the most similar ones.

Shapes: N indexed images, D dimensions, Q queries, K neighbours.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainables.files import DAMAGED, given_path, regular, write_json, write_whole
from trainables.inference.images import ImageLike
from trainables.inference.index.description import (
    DESCRIPTION,
    PATHS,
    VECTORS,
    IndexDescription,
    damaged,
    read_description,
    refuse_neighbours,
    refuse_other_folder,
)
from trainables.inference.index.structures import built_index, faiss, kind_for, read_index, search_index
from trainables.mistakes import Mistakes
from trainables.storage import AnyPath


class Embeds(Protocol):
    """The interface of a model that an index needs."""

    address: str | None

    @property
    def weights_sha256(self) -> str:
        """Return the SHA-256 of the weights."""

    def embed(self, images: ImageLike | Iterable[ImageLike]) -> NDArray[np.float32]:
        """Compute embeddings [N, D] of length 1."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An indexed image and the cosine similarity, −1 … 1, of its embedding to a query's."""

    path: str
    similarity: float


class ImageIndex:
    """Embeddings in a faiss index, the paths of their images, and the model that computed them.

    Created by ``Embedder.index`` and :meth:`load`. ``faiss_index`` is the faiss object, described by ``description``.
    """

    def __init__(self, faiss_index: Any, paths: Sequence[str], description: IndexDescription, model: Embeds) -> None:
        self.faiss_index = faiss_index
        self.paths = tuple(paths)
        self.description = description
        self.model = model
        self._searching = Lock()

    def __repr__(self) -> str:
        return f"<holdout.ImageIndex of {len(self):,} images, {self.description.kind}>"

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def of(
        cls, embeddings_ND: NDArray[np.float32], paths: Sequence[str], model: Embeds, *, kind: str | None = None
    ) -> "ImageIndex":
        """Build an index of embeddings that ``model`` computed for the images at ``paths``.

        Args:
            embeddings_ND: embeddings of length 1.
            paths: the N paths of their images.
            model: the model that computed them.
            kind: ``exact``, ``ivf`` or ``hnsw``; by default exact up to a million images, and ivf above.

        Raises:
            Mistakes: there is no embedding, their number is not that of the paths, or ``kind`` is unknown or needs more
                images.
        """
        if embeddings_ND.ndim != 2 or not len(embeddings_ND) or len(embeddings_ND) != len(paths):
            raise Mistakes(
                f"An index needs one embedding per path, and at least one; there are {len(paths)} paths, and "
                f"embeddings of {_shape(embeddings_ND)}."
            )
        vectors_ND = np.ascontiguousarray(embeddings_ND, dtype=np.float32)
        chosen = kind_for(len(paths), kind)
        faiss_index, recall = built_index(vectors_ND, chosen)
        description = IndexDescription(
            kind=chosen,
            images=len(paths),
            dimensions=vectors_ND.shape[1],
            model=model.address,
            weights_sha256=model.weights_sha256,
            recall=recall,
        )
        return cls(faiss_index, paths, description, model)

    def query(self, images: ImageLike | Iterable[ImageLike], k: int = 10) -> list[list[Neighbour]]:
        """Find the ``k`` images of the index that are most similar to each of ``images``, the most similar first.

        Args:
            images: one or several, as for :meth:`Embedder.embed`.
            k: number of neighbours, at most the number of images in the index.

        Returns:
            One list per image. An approximate index may find fewer than ``k``.

        Raises:
            Mistakes: images cannot be read, or ``k`` is out of range.
        """
        refuse_neighbours(k, self.description)
        return self.search(self.model.embed(images), k)

    def search(self, embeddings_QD: NDArray[np.float32], k: int = 10) -> list[list[Neighbour]]:
        """Find neighbours as :meth:`query` does, given embeddings of length 1.

        Raises:
            Mistakes: the embeddings' dimensions are not the index's, or ``k`` is out of range.
        """
        refuse_neighbours(k, self.description)
        if embeddings_QD.ndim != 2 or embeddings_QD.shape[1] != self.description.dimensions:
            raise Mistakes(
                f"The index holds embeddings of {self.description.dimensions} dimensions, and the queries are of "
                f"{_shape(embeddings_QD)}; give them as queries × {self.description.dimensions}."
            )
        queries_QD = np.ascontiguousarray(embeddings_QD, dtype=np.float32)
        described = self.description
        with self._searching:
            similarities_QK, rows_QK = search_index(self.faiss_index, described.kind, described.recall, queries_QD, k)
        return [
            [Neighbour(path=self.paths[row], similarity=similarity) for row, similarity in zip(*found) if row >= 0]
            for found in zip(rows_QK.tolist(), similarities_QK.tolist())
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index into a folder; an index in it is overwritten.

        ``index.faiss`` is faiss's own file, ``paths.json`` lists the paths of its rows, and ``index.json``, written
        last, is the description, with the digests of both.

        Raises:
            Mistakes: the folder holds other files, or cannot be written.
        """
        path = given_path(os.fspath(folder))
        refuse_other_folder(path)
        try:
            (path / DESCRIPTION).unlink(missing_ok=True)  # so that a half-written index is not read
            write_whole(
                path / VECTORS,
                lambda file: faiss().write_index(self.faiss_index, faiss().PyCallbackIOWriter(file.write)),
            )
            write_json(path / PATHS, self.paths)
            digests = {name: _digest(path / name)[0] for name in (VECTORS, PATHS)}
            write_json(path / DESCRIPTION, replace(self.description, sha256=digests).to_json())
        except OSError as error:
            raise Mistakes(f"{path} cannot be written ({error.strerror or error}); name another folder.") from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: Embeds) -> "ImageIndex":
        """Load the index in a folder; ``model`` has to be the one that embedded its images.

        Raises:
            Mistakes: there is no index, it is damaged or has another format, or another model made it.
        """
        path = given_path(os.fspath(folder))
        description = read_description(path)
        refuse_other_model(path, description, model)
        faiss_index, paths = _read_vectors(path, description), _read_paths(path, description)
        found = (faiss_index.ntotal, faiss_index.d, len(paths))
        if found != (description.images, description.dimensions, description.images):
            raise damaged(
                path, f"{found[0]} vectors of {found[1]} dimensions and {found[2]} paths contradict {DESCRIPTION}"
            )
        return cls(faiss_index, paths, description, model)


def refuse_other_model(folder: AnyPath, description: IndexDescription, model: Embeds) -> None:
    """Raise if ``model`` is not the one that made the index: embeddings of two models are not comparable.

    Raises:
        Mistakes: their weights differ.
    """
    if model.weights_sha256 != description.weights_sha256:
        made_by = f"the model {description.model}" if description.model else "another model"
        given = model.address or "the model given"
        raise Mistakes(
            f"The index {folder} was made by {made_by}, whose weights are {description.weights_sha256[:12]}…, and "
            f"those of {given} are {model.weights_sha256[:12]}…; give the model that made it, or make the index again."
        )


def _digest(path: AnyPath) -> tuple[str, int]:
    """Return the SHA-256 (hex) and the size of a file."""
    with regular(path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # fsspec's files will do
        return digest, file.tell()


def _read_vectors(folder: AnyPath, description: IndexDescription) -> Any:
    """Read ``index.faiss``; its digest is checked first, since faiss may crash on a damaged file."""
    try:
        size = _checked_size(folder, VECTORS, description)
        with regular(folder / VECTORS).open("rb") as file:
            return read_index(file, size, description.kind, description.recall)
    except OSError as error:
        raise damaged(folder, f"{VECTORS}: {error.strerror or error}") from error
    except ValueError as error:
        raise damaged(folder, f"{VECTORS}: {error}") from error
    except (RuntimeError, MemoryError) as error:  # a damaged file may ask for any amount of memory
        raise damaged(folder, f"{VECTORS} is not a valid faiss index") from error


def _read_paths(folder: AnyPath, description: IndexDescription) -> list[str]:
    try:
        _checked_size(folder, PATHS, description)
        paths = json.loads((folder / PATHS).read_text())
    except (OSError, *DAMAGED) as error:
        raise damaged(folder, f"{PATHS}: {error}") from error
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise damaged(folder, f"{PATHS} is not a list of paths")
    return paths


def _checked_size(folder: AnyPath, name: str, description: IndexDescription) -> int:
    """Return the size of the file ``name`` of an index.

    Raises:
        ValueError: it is not the file that the description describes.
        OSError: it cannot be read.
    """
    digest, size = _digest(folder / name)
    if digest != description.sha256[name]:
        raise ValueError(f"it is not the file that {DESCRIPTION} describes, its SHA-256 is {digest[:12]}…")
    return size


def _shape(array: NDArray[Any]) -> str:
    return " × ".join(map(str, array.shape)) or "no dimension"
