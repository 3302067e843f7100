"""A model on disk: tensors, description and card."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.data.augment import Frame
from trainables.files import DAMAGED, write_json, write_text, write_whole
from trainables.mistakes import Mistakes
from trainables.models.config import ModelConfig
from trainables.storage import AnyPath

if TYPE_CHECKING:
    from torch import Tensor


# Named tensors in one file (safetensors) with what describes them; nothing in it is ever executed.

LOSS = "loss."
"""A checkpoint holds what the loss learned beside the network: the names of its tensors begin so."""

_KEY = "holdout"

Array = TypeVar("Array")
"""PyTorch's tensor or NumPy's array."""


def tensors_bytes(tensors: "Mapping[str, Tensor]", description: Mapping[str, Any] | None = None) -> bytes:
    """The content of a file of ``tensors``, with ``description`` in its head as JSON."""
    import torch
    from safetensors.torch import save

    whole = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    metadata = {"format": "pt", **({_KEY: json.dumps(description, allow_nan=False)} if description else {})}
    return save(whole, metadata)


def read_tensors(path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """The tensors of a file, on the CPU, and their description; None where there is none.

    Raises:
        OSError: it cannot be read.
        Mistakes: it is no such file.
    """
    return parsed_tensors(path.read_bytes(), path)


def parsed_tensors(content: bytes, path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """As :func:`read_tensors`, of the ``content`` of the file at ``path``."""
    from safetensors.torch import load

    with _readable(path):
        return load(content), _description_of(content)


def read_network(path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """The tensors of a checkpoint's network, without those of its loss, and their description; errors as above."""
    tensors, description = read_tensors(path)
    return _of_network(tensors), description


def network_file(path: AnyPath) -> tuple[bytes, Any]:
    """A file's content with a checkpoint's network alone, and what describes it, without torch; errors as above."""
    from safetensors.numpy import load, save

    content = path.read_bytes()
    with _readable(path):
        return save(_of_network(load(content)), {"format": "pt"}), _description_of(content)


def _of_network(tensors: Mapping[str, Array]) -> dict[str, Array]:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(LOSS)}


@contextmanager
def _readable(path: AnyPath) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, *DAMAGED) as error:
        raise Mistakes(f"{path} holds no tensors in the form of safetensors ({error}); restore the file.") from error


def _description_of(content: bytes) -> Any:
    """What the head of a file of tensors says of them: its first 8 bytes are the length of the JSON that follows."""
    head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    text = head.get("__metadata__", {}).get(_KEY)
    return None if text is None else json.loads(text)


# What has to be known of a trained network to embed images as its test did.

FORMAT = 1
"""Changes with every change of the keys or of their meaning."""


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec:
    """A network and its preprocessing.

    An image is decoded, scaled down to a short side of ``decoded_side`` pixels where it is larger (8 bits, bilinear,
    antialiased), cut as ``frame`` says, embedded by ``model`` in float32, ``batch_size`` images at once, and its
    embedding divided by its length. ``origin`` says what it was trained on and how, in JSON's types.
    """

    model: ModelConfig
    decoded_side: int
    frame: Frame
    batch_size: int
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """For ``model.json`` and the head of a checkpoint."""
        return {"format": FORMAT, **asdict(self), "normalised": True}

    @classmethod
    def from_json(cls, content: Any, path: object) -> "EmbedderSpec":
        """What ``path`` holds.

        Raises:
            Mistakes: it is of another format, or damaged.
        """
        found = content.get("format") if isinstance(content, Mapping) else None
        if found != FORMAT:
            raise Mistakes(
                f"{path} describes a model in the format {found!r}, and this version reads {FORMAT}; export the model "
                "again with this version, or load it with the one that wrote it."
            )
        try:
            return cls(
                model=ModelConfig(**content["model"]),
                decoded_side=int(content["decoded_side"]),
                frame=Frame(**content["frame"]),
                batch_size=int(content["batch_size"]),
                origin=content["origin"],
            )
        except DAMAGED as error:
            raise Mistakes(f"{path} is damaged ({type(error).__name__}: {error}); export the model again.") from error


# A model on disk: its weights, its description and a card for people. Nothing here needs torch.

WEIGHTS, DESCRIPTION, CARD = "model.safetensors", "model.json", "README.md"


def write_model(folder: AnyPath, weights: bytes, spec: EmbedderSpec, card: str) -> None:
    """Write a model into ``folder``: ``weights`` is the content of a file of its network's tensors.

    The description comes last: where it is, all is.
    """
    write_whole(folder / WEIGHTS, lambda file: file.write(weights))
    write_text(folder / CARD, card)
    write_json(folder / DESCRIPTION, {**spec.to_json(), "weights_sha256": hashlib.sha256(weights).hexdigest()})
