"""What lies on disk of an index beside its vectors. Nothing here needs numpy, torch or faiss."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from trainables.files import DAMAGED
from trainables.mistakes import Mistakes
from trainables.storage import AnyPath

FORMAT = 1
"""Changes with every change of the keys or of their meaning."""

VECTORS, PATHS, DESCRIPTION = "index.faiss", "paths.json", "index.json"


class IndexKind(StrEnum):
    """How neighbours are searched: among all images, in the nearest lists of them, or along a graph."""

    EXACT = "exact"
    IVF = "ivf"
    HNSW = "hnsw"


@dataclass(frozen=True, kw_only=True)
class MeasuredRecall:
    """What an approximate index finds of the true neighbours.

    ``parameter`` is faiss's (``nprobe``, ``efSearch``), set to the smallest ``value`` with a ``recall_at_10`` of
    ``target``; where none has it, to the largest that was tried. The recall is the mean over ``images`` of the index:
    the part of the ten most similar other images that is found.
    """

    parameter: str
    value: int
    recall_at_10: float
    target: float
    images: int

    def sentence(self) -> str:
        """For people."""
        reached = "" if self.recall_at_10 >= self.target else f", short of the {self.target} that was aimed at"
        return (
            f"Recall@10 against exact search, on {self.images:,} of the index's own images: {self.recall_at_10:.4f} "
            f"with {self.parameter} = {self.value}{reached}."
        )


@dataclass(frozen=True, kw_only=True)
class IndexDescription:
    """An index of ``images`` embeddings of ``dimensions``.

    ``model`` is the address of what embedded them, None where it has none, and ``weights_sha256`` says which one it
    was. ``recall`` is None of an exact index, which finds all neighbours.
    """

    kind: IndexKind
    images: int
    dimensions: int
    model: str | None
    weights_sha256: str
    recall: MeasuredRecall | None

    def to_json(self) -> dict[str, Any]:
        """For ``index.json``."""
        return {"format": FORMAT, **asdict(self), "similarity": "inner product of vectors of length 1"}


def read_description(folder: AnyPath) -> IndexDescription:
    """What ``index.json`` in ``folder`` says.

    Raises:
        Mistakes: the folder holds no index, one of another format, or a damaged one.
    """
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise Mistakes(
            f"{folder} is no index: {DESCRIPTION} cannot be read there ({error.strerror or error}). Give a folder that "
            "`holdout index` made."
        ) from error
    except DAMAGED as error:
        raise damaged(folder, error) from error
    found = content.get("format") if isinstance(content, Mapping) else None
    if found != FORMAT:
        raise Mistakes(
            f"{path} describes an index in the format {found!r}, and this version reads {FORMAT}; make the index again "
            "with this version, or query it with the one that made it."
        )
    try:
        recall = content["recall"]
        return IndexDescription(
            kind=IndexKind(content["kind"]),
            images=int(content["images"]),
            dimensions=int(content["dimensions"]),
            model=content["model"],
            weights_sha256=str(content["weights_sha256"]),
            recall=None if recall is None else MeasuredRecall(**recall),
        )
    except DAMAGED as error:
        raise damaged(folder, error) from error


def damaged(folder: AnyPath, error: object) -> Mistakes:
    """The sentence on an index that cannot be read."""
    reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else error
    return Mistakes(f"The index {folder} is damaged ({reason}); make it again.")


def refuse_other_folder(folder: AnyPath) -> None:
    """Only an index may be overwritten.

    Raises:
        Mistakes: ``folder`` is a file, or holds something else.
    """
    if folder.is_file():
        raise Mistakes(f"{folder} is a file, and an index is a folder; name another one.")
    if not folder.is_dir():
        return
    ours = {VECTORS, PATHS, DESCRIPTION}
    drafts = tuple(f".{name}." for name in ours)
    others = sorted(
        path.name for path in folder.iterdir() if path.name not in ours and not path.name.startswith(drafts)
    )
    if others:
        raise Mistakes(
            f"{folder} holds something else than an index ({others[0]}), and an index would be written over it; name a "
            "folder that is not there, is empty, or holds an index."
        )


def refuse_neighbours(k: int, description: IndexDescription) -> None:
    """There are so many neighbours.

    Raises:
        Mistakes: there are not.
    """
    if not 1 <= k <= description.images:
        raise Mistakes(f"k is {k}, and the index holds {description.images:,} images; give 1 to {description.images}.")
