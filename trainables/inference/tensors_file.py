"""Named tensors in one file (safetensors) with what describes them; nothing in it is ever executed."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.files.storage import AnyPath
from trainables.files.whole import DAMAGED
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from torch import Tensor

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
