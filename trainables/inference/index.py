"""An index of images, queried for the most similar ones: embeddings searched exactly by faiss, and its files.

Shapes: N indexed images, D dimensions, Q queries, K neighbours. numpy, torch and faiss are imported on first use.
"""

import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import methodcaller
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from trainables.common.errors import InvalidInput, counted, shaped
from trainables.common.files import DAMAGED, digest_of, given_path, json_text, read_regular, write_together
from trainables.common.storage import AnyPath

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from trainables.inference.given_images import ImageLike

FORMAT = 3  # version of the description, incremented with every change of its keys or their meaning
VECTORS, PATHS, DESCRIPTION = "index.faiss", "paths.json", "index.json"

_HEADER = 45  # bytes before the vectors in faiss's file of a flat index; the last 8 are how many numbers follow


class Embeds(Protocol):
    """The interface of a model that an index needs."""

    address: str | None

    @property
    def weights_sha256(self) -> str:
        """Return the SHA-256 of the weights."""

    def embed(self, images: "ImageLike | Iterable[ImageLike]") -> "NDArray[np.float32]":
        """Compute embeddings [N, D] of length 1."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An indexed image and the cosine similarity, −1 … 1, of its embedding to a query's."""

    path: str
    similarity: float


@dataclass(frozen=True, kw_only=True)
class IndexDescription:
    """The description of an index: ``images`` embeddings of ``dimensions`` dimensions.

    ``model`` is the address of the model that embedded them, if it has one, and ``weights_sha256`` identifies it.
    ``sha256`` identifies the other files of an index that was read from disk, by name.
    """

    images: int
    dimensions: int
    model: str | None
    weights_sha256: str
    sha256: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self), "similarity": "inner product of vectors of length 1"}


class ImageIndex:
    """Embeddings in a faiss index, the paths of their images, and the model that computed them.

    Created by ``Embedder.index`` and :meth:`load`. ``faiss_index`` is the faiss object, described by ``description``.
    """

    def __init__(self, faiss_index: Any, paths: Sequence[str], description: IndexDescription, model: Embeds) -> None:
        self.faiss_index = faiss_index
        self.paths = tuple(paths)
        self.description = description
        self.model = model

    def __repr__(self) -> str:
        return f"<holdout.ImageIndex of {len(self):,} images>"

    def __len__(self) -> int:
        return len(self.paths)

    @classmethod
    def of(cls, embeddings_ND: "NDArray[np.float32]", paths: Sequence[str], model: Embeds) -> "ImageIndex":
        """Build an index of embeddings of length 1 that ``model`` computed for the images at ``paths``."""
        if embeddings_ND.ndim != 2 or not len(embeddings_ND) or len(embeddings_ND) != len(paths):
            found = f"there are {len(paths)} paths, and embeddings of {shaped(embeddings_ND.shape)}"
            raise InvalidInput(f"An index needs one embedding per path, and at least one; {found}.")
        dimensions = embeddings_ND.shape[1]
        faiss_index = _faiss().IndexFlatIP(dimensions)
        faiss_index.add(embeddings_ND.astype("float32", order="C", copy=False))
        description = IndexDescription(
            images=len(paths), dimensions=dimensions, model=model.address, weights_sha256=model.weights_sha256
        )
        return cls(faiss_index, paths, description, model)

    def query(self, images: "ImageLike | Iterable[ImageLike]", k: int = 10) -> list[list[Neighbour]]:
        """Find the ``k`` images of the index that are most similar to each of ``images``, the most similar first.

        Args:
            images: one or several, as for :meth:`Embedder.embed`.
            k: number of neighbours, at most the number of images in the index.

        Raises:
            InvalidInput: images cannot be read, or ``k`` is out of range.
        """
        refuse_neighbours(k, self.description)
        return self.search(self.model.embed(images), k)

    def search(self, embeddings_QD: "NDArray[np.float32]", k: int = 10) -> list[list[Neighbour]]:
        """Find neighbours as :meth:`query` does, given embeddings of length 1 and of the index's dimensions."""
        refuse_neighbours(k, self.description)
        if embeddings_QD.ndim != 2 or embeddings_QD.shape[1] != self.description.dimensions:
            raise InvalidInput(
                f"The index holds embeddings of {self.description.dimensions} dimensions, and the queries are of "
                f"{shaped(embeddings_QD.shape)}; give them as queries × {self.description.dimensions}."
            )
        queries_QD = embeddings_QD.astype("float32", order="C", copy=False)
        similarities_QK, rows_QK = self.faiss_index.search(queries_QD, k)
        return [  # a row is −1 where the similarity is not a number
            [Neighbour(path=self.paths[row], similarity=similarity) for row, similarity in zip(*found) if row >= 0]
            for found in zip(rows_QK.tolist(), similarities_QK.tolist())
        ]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index into a folder; an index in it is overwritten once the new one is complete.

        ``index.faiss`` is faiss's own file, ``paths.json`` lists the paths of its rows, and ``index.json`` is the
        description, with the digests of both.

        Raises:
            InvalidInput: the folder holds other files, or cannot be written.
        """
        path = given_path(os.fspath(folder))
        refuse_other_folder(path)
        vectors = _faiss().serialize_index(self.faiss_index).tobytes()
        content = {VECTORS: vectors, PATHS: json.dumps(self.paths, indent=2).encode()}
        digests = {name: digest_of(part) for name, part in content.items()}
        content[DESCRIPTION] = json_text(replace(self.description, sha256=digests).to_json()).encode()
        try:
            write_together({path / name: methodcaller("write", part) for name, part in content.items()})
        except OSError as error:
            raise InvalidInput(f"{path} cannot be written ({error.strerror or error}); name another folder.") from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str], model: Embeds) -> "ImageIndex":
        """Load the index in a folder; ``model`` has to be the one that embedded its images.

        Raises:
            InvalidInput: there is no index, it is damaged or has another format, or another model made it.
        """
        path = given_path(os.fspath(folder))
        described = read_description(path)
        if model.weights_sha256 != described.weights_sha256:  # embeddings of two models are not comparable
            made_by = f"the model {described.model}" if described.model else "another model"
            given = model.address or "the model given"
            raise InvalidInput(
                f"The index {path} was made by {made_by}, whose weights are {described.weights_sha256[:12]}…, and "
                f"those of {given} are {model.weights_sha256[:12]}…; give the model that made it, or make the index "
                "again."
            )
        try:
            faiss_index = _deserialized(_content(path, VECTORS, described))
            paths = json.loads(_content(path, PATHS, described))
            if not isinstance(paths, list) or not all(isinstance(name, str) for name in paths):
                raise ValueError(f"{PATHS} is not a list of paths")
            vectors, dimensions = faiss_index.ntotal, faiss_index.d
            if (vectors, dimensions, len(paths)) != (described.images, described.dimensions, described.images):
                found = f"{vectors} vectors of {dimensions} dimensions and {len(paths)} paths"
                raise ValueError(f"{found} contradict {DESCRIPTION}")
        except (OSError, *DAMAGED) as error:
            raise _damaged(path, error) from error
        return cls(faiss_index, paths, described, model)


def read_description(folder: AnyPath) -> IndexDescription:
    """Read ``index.json`` in ``folder``; raise :class:`InvalidInput` if it holds no index that can be read."""
    path = folder / DESCRIPTION
    try:
        content = json.loads(read_regular(path))
        if content.get("format") == FORMAT:
            if not isinstance(model := content["model"], str | None):
                raise ValueError(f"model is {model!r}")
            return IndexDescription(
                images=int(content["images"]),
                dimensions=int(content["dimensions"]),
                model=model,
                weights_sha256=str(content["weights_sha256"]),
                sha256={name: str(content["sha256"][name]) for name in (VECTORS, PATHS)},
            )
    except OSError as error:
        raise InvalidInput(
            f"{folder} is not an index: {DESCRIPTION} cannot be read there ({error.strerror or error}). Give a folder "
            "that `holdout index` wrote."
        ) from error
    except DAMAGED as error:
        raise _damaged(folder, error) from error
    found = f"an index in the format {content.get('format')!r}, and this version reads {FORMAT}"
    fix = "make the index again with this version, or query it with the one that made it"
    raise InvalidInput(f"{path} describes {found}; {fix}.")


def _content(folder: AnyPath, name: str, description: IndexDescription) -> bytes:
    content = read_regular(folder / name)
    if (digest := digest_of(content)) != description.sha256[name]:
        raise ValueError(f"{name} is not the file that {DESCRIPTION} describes, its SHA-256 is {digest[:12]}…")
    return content


def _deserialized(content: bytes) -> Any:
    faiss = _faiss()
    numbers = int.from_bytes(content[_HEADER - 8 : _HEADER], "little")
    # faiss chooses the code that reads a file by its first bytes, and trusts the sizes in it
    if content[:4] != b"IxFI" or len(content) != _HEADER + 4 * numbers:
        raise ValueError(f"{VECTORS} is not a flat index")
    try:
        index = faiss.read_index(faiss.PyCallbackIOReader(io.BytesIO(content).read))
    except RuntimeError as error:
        raise ValueError(f"{VECTORS} is not a valid faiss index") from error
    if index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise ValueError(f"the similarity of {VECTORS} is not the inner product")
    return index


def _faiss() -> ModuleType:
    from trainables.metrics.gallery import import_faiss

    faiss, problem = import_faiss()
    if faiss is None:
        raise InvalidInput(f"An index needs faiss, which cannot be imported: {problem}.")
    return faiss


def refuse_other_folder(folder: AnyPath) -> None:
    """Raise :class:`InvalidInput` unless ``folder`` may be written: it does not exist, is empty, or holds an index."""
    if folder.is_file():
        raise InvalidInput(f"{folder} is a file, and an index is a folder; name another one.")
    ours = (VECTORS, PATHS, DESCRIPTION)
    drafts = tuple(f".{name}." for name in ours)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    if others := sorted(name for name in names if name not in ours and not name.startswith(drafts)):
        what = f"holds files that are not an index's ({others[0]})"
        fix = "name a folder that does not exist, is empty, or holds an index, which is overwritten"
        raise InvalidInput(f"{folder} {what}; {fix}.")


def refuse_neighbours(k: int, description: IndexDescription) -> None:
    """Raise :class:`InvalidInput` if ``k`` is less than 1 or exceeds the size of the index."""
    most = description.images
    if not 1 <= k <= most:
        fix = f"1 to {most}" if most > 1 else "1"
        raise InvalidInput(f"k is {k}, and the index holds {counted(most, 'image')}; give {fix}.")


def _damaged(folder: AnyPath, error: Exception) -> InvalidInput:
    reason = error if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return InvalidInput(f"The index {folder} is damaged ({reason}); make it again.")
