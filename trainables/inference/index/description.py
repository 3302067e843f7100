"""The description of an index on disk; numpy, torch and faiss are not imported."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from trainables.files import DAMAGED, regular
from trainables.mistakes import Mistakes, counted
from trainables.storage import AnyPath

FORMAT = 2
"""Version of the description, incremented with every change of its keys or their meaning."""

VECTORS, PATHS, DESCRIPTION = "index.faiss", "paths.json", "index.json"


class IndexKind(StrEnum):
    """Kinds of search: among all images, in inverted lists, or along a graph."""

    EXACT = "exact"
    IVF = "ivf"
    HNSW = "hnsw"


@dataclass(frozen=True, kw_only=True)
class MeasuredRecall:
    """The measured recall of an approximate index.

    ``parameter`` is faiss's (``nprobe``, ``efSearch``), set to the smallest ``value`` that reaches a ``recall_at_10``
    of ``target``, or to the largest value tried if none does. The recall is the fraction of the ten most similar other
    images that is found, averaged over ``images`` images of the index.
    """

    parameter: str
    value: int
    recall_at_10: float
    target: float
    images: int

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "MeasuredRecall":
        """Return the recall in an index's description.

        Raises:
            ValueError: a value is not one that this program writes; so do the errors in :data:`DAMAGED`.
        """
        return cls(
            parameter=str(content["parameter"]),
            value=_count(content, "value"),
            recall_at_10=float(content["recall_at_10"]),
            target=float(content["target"]),
            images=_count(content, "images"),
        )

    def sentence(self) -> str:
        """Return a sentence for people."""
        reached = "" if self.recall_at_10 >= self.target else f", below the target of {self.target}"
        return (
            f"Recall@10 against exact search, on {self.images:,} of the index's own images: {self.recall_at_10:.4f} "
            f"with {self.parameter} = {self.value}{reached}."
        )


@dataclass(frozen=True, kw_only=True)
class IndexDescription:
    """The description of an index: ``images`` embeddings of ``dimensions`` dimensions.

    ``model`` is the address of the model that embedded them, if it has one, and ``weights_sha256`` identifies it.
    ``recall`` is None for an exact index, which finds all neighbours. ``sha256`` identifies the other files of an index
    that was read from disk, by name.
    """

    kind: IndexKind
    images: int
    dimensions: int
    model: str | None
    weights_sha256: str
    recall: MeasuredRecall | None
    sha256: Mapping[str, str] = field(default_factory=dict, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the content for ``index.json``."""
        return {"format": FORMAT, **asdict(self), "similarity": "inner product of vectors of length 1"}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "IndexDescription":
        """Return the description that :meth:`to_json` wrote.

        Raises:
            ValueError: a value is not one that this program writes; so do the errors in :data:`DAMAGED`.
        """
        recall, model, digests = content["recall"], content["model"], content["sha256"]
        described = cls(
            kind=IndexKind(content["kind"]),
            images=_count(content, "images"),
            dimensions=_count(content, "dimensions"),
            model=model,
            weights_sha256=str(content["weights_sha256"]),
            recall=None if recall is None else MeasuredRecall.from_json(recall),
            sha256={name: str(digests[name]) for name in (VECTORS, PATHS)},
        )
        if model is not None and not isinstance(model, str):
            raise ValueError(f"model is {model!r}")
        if (described.recall is None) != (described.kind is IndexKind.EXACT):
            raise ValueError(f"an index of the kind {described.kind} with recall {recall!r}")
        return described


def read_description(folder: AnyPath) -> IndexDescription:
    """Read ``index.json`` in ``folder``.

    Raises:
        Mistakes: the folder holds no index, or one that has another format or is damaged.
    """
    path = folder / DESCRIPTION
    try:
        content = json.loads(regular(path).read_text())
    except OSError as error:
        raise Mistakes(
            f"{folder} is not an index: {DESCRIPTION} cannot be read there ({error.strerror or error}). Give a folder "
            "that `holdout index` wrote."
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
        return IndexDescription.from_json(content)
    except DAMAGED as error:
        raise damaged(folder, error) from error


def _count(content: Mapping[str, Any], key: str) -> int:
    """Return a positive number.

    Raises:
        ValueError: it is something else.
    """
    value = content[key]
    if type(value) is not int or not 0 < value < 2**63:
        raise ValueError(f"{key} is {value!r:.100}")
    return value


def damaged(folder: AnyPath, error: object) -> Mistakes:
    """Return the error for an index that cannot be read."""
    reason = f"{type(error).__name__}: {error}" if isinstance(error, Exception) else error
    return Mistakes(f"The index {folder} is damaged ({reason}); make it again.")


def refuse_other_folder(folder: AnyPath) -> None:
    """Raise unless ``folder`` may be written: it does not exist, is empty, or holds an index.

    Raises:
        Mistakes: ``folder`` is a file, or holds other files.
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
            f"{folder} holds files that are not an index's ({others[0]}); name a folder that does not exist, is empty, "
            "or holds an index, which is overwritten."
        )


def refuse_neighbours(k: int, description: IndexDescription) -> None:
    """Raise if ``k`` is less than 1 or exceeds the size of the index.

    Raises:
        Mistakes: it does.
    """
    if not 1 <= k <= description.images:
        most = description.images
        fix = f"1 to {most}" if most > 1 else "1"
        raise Mistakes(f"k is {k}, and the index holds {counted(most, 'image')}; give {fix}.")
