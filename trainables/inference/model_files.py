"""Files of a model: tensors in the safetensors format, description and card.

Nothing in them is ever executed. Only functions that return torch tensors import torch.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainables.common.errors import InvalidInput
from trainables.common.files import DAMAGED, digest_of, given_path, json_text, read_regular, write_together
from trainables.common.storage import AnyPath
from trainables.data import Frame
from trainables.models.config import ModelConfig

if TYPE_CHECKING:
    from torch import Tensor


LOSS = "loss."  # name prefix of the loss's tensors in a checkpoint, which holds them next to the network's
PROBE = "probe"  # its tensor with embeddings of some items by the model in memory, by which the kept one is checked
_KEY, _DIGEST = "holdout", "sha256"
Array = TypeVar("Array")  # a torch tensor or a NumPy array


def tensors_bytes(tensors: "Mapping[str, Tensor]", description: Mapping[str, Any] | None = None) -> bytes:
    """Return the content of a file of ``tensors``; a ``description`` is in its header, with a digest of it all."""
    import torch
    from safetensors.torch import save

    whole = {name: tensor.detach().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    if not description:
        return save(whole, {"format": "pt"})
    head, content = _parts(save(whole, {"format": "pt", _KEY: json.dumps(description, allow_nan=False)}))
    head["__metadata__"][_DIGEST] = _digest_of(head, content)
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the tensors
    return b"".join((len(text).to_bytes(8, "little"), text, content))


def is_whole(content: bytes) -> bool:
    """Return True if the ``content`` of a file with a description is that which :func:`tensors_bytes` returned."""
    try:
        head, tensors = _parts(content)
        return bool(head["__metadata__"].pop(_DIGEST) == _digest_of(head, tensors))
    except DAMAGED:
        return False


def _parts(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a tensor file, whose first 8 bytes are its length, and the bytes of the tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    head: dict[str, Any] = json.loads(content[8:end])
    return head, memoryview(content)[end:]


def _digest_of(head: Mapping[str, Any], tensors: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    digest.update(tensors)
    return digest.hexdigest()


def read_tensors(path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """Read the tensors of a file onto the CPU, and their description if there is one.

    Raises OSError if the file cannot be read, and :class:`InvalidInput` if it is not a valid safetensors file.
    """
    return parsed_tensors(read_regular(path), path)


def parsed_tensors(content: bytes, path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """Parse the ``content`` of the file at ``path`` as :func:`read_tensors` does."""
    from safetensors.torch import load

    with _readable(path):
        return load(content), description_of(content)


def read_network(path: AnyPath) -> "tuple[dict[str, Tensor], Any]":
    """Read the tensors of a checkpoint's network alone, and their description; errors as above."""
    tensors, description = read_tensors(path)
    return of_network(tensors), description


def network_file(path: AnyPath) -> tuple[bytes, Any]:
    """Return the content of a file with a checkpoint's network only, and its description; torch is not imported."""
    from safetensors.numpy import load, save

    content = read_regular(path)
    with _readable(path):
        return save(of_network(load(content)), {"format": "pt"}), description_of(content)


def of_network(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors of a checkpoint that are its model's."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(LOSS) and name != PROBE}


@contextmanager
def _readable(path: AnyPath) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, *DAMAGED) as error:
        raise InvalidInput(f"{path} is not a valid safetensors file ({error}); restore the file.") from error


def description_of(content: bytes) -> Any:
    """Return the description in a tensor file's header."""
    head, _ = _parts(content)
    text = head.get("__metadata__", {}).get(_KEY)
    return None if text is None else json.loads(text)


# The description of a network and its preprocessing.

MOST = 16_384  # limit of a side in pixels and of a batch, which memory grows with
FORMAT = 1  # version of the description, incremented with every change of its keys or their meaning


@dataclass(frozen=True, kw_only=True)
class EmbedderSpec:
    """A network and its preprocessing, complete enough to embed images as the search's test did.

    An image is decoded, scaled down to a short side of ``decoded_side`` pixels if it is larger (8 bits, bilinear,
    antialiased), resized and cropped by ``frame``, and embedded by ``model`` in float32, ``batch_size`` images at once;
    embeddings are divided by their length. ``origin`` describes the training as JSON types.
    """

    model: ModelConfig
    decoded_side: int
    frame: Frame
    batch_size: int
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the content for ``model.json`` and for a checkpoint's header."""
        content = {"format": FORMAT, **asdict(self), "normalised": True}
        del content["model"]["lora"]  # merged
        return content

    @classmethod
    def from_json(cls, content: Any, path: object) -> "EmbedderSpec":
        """Validate the ``content`` of ``path``; raise :class:`InvalidInput` if it has another format or is damaged."""
        if is_of_trainable(content):
            what = f"a model of {content['trainable']}, a user-defined training"
            raise InvalidInput(f"{path} is {what}; load it by holdout.load.")
        found = content.get("format") if isinstance(content, Mapping) else None
        if found != FORMAT:
            raise InvalidInput(
                f"{path} describes a model in the format {found!r}, and this version reads {FORMAT}; export the model "
                "again with this version, or load it with the one that wrote it."
            )
        try:
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in content["model"].items()
            }
            model, frame = ModelConfig(**given), Frame(**content["frame"])
            if model.weights is not None:  # another file: those of the model are beside its description
                raise ValueError(f"model.weights must be null; it is {model.weights!r}")
            numbers = {key: content[key] for key in ("decoded_side", "batch_size")}
            for key, value in {"frame.side": frame.side, "frame.short_side": frame.short_side, **numbers}.items():
                if type(value) is not int or not 1 <= value <= MOST:
                    raise ValueError(f"{key} must be a whole number from 1 to {MOST}; it is {value!r:.40}")
            return cls(model=model, frame=frame, origin=content["origin"], **numbers)
        except DAMAGED as error:
            raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: object, reason: object) -> InvalidInput:
    return InvalidInput(f"{path} is damaged ({reason}); export the model again.")


@dataclass(frozen=True, kw_only=True)
class TrainableSpec:
    """The model of a user-defined training: its class, its params, and its ``origin`` as in :class:`EmbedderSpec`.

    Its tensors are the files that its ``save`` wrote, as bytes.
    """

    trainable: str
    params: Mapping[str, Any]
    origin: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return the content for ``model.json`` and for a checkpoint's header."""
        return {"format": FORMAT, **asdict(self)}


def model_spec(content: Any, path: object) -> "EmbedderSpec | TrainableSpec":
    """Return the description of any model, see :meth:`EmbedderSpec.from_json`."""
    if not is_of_trainable(content):
        return EmbedderSpec.from_json(content, path)
    try:
        return TrainableSpec(**{name: content[name] for name in ("trainable", "params", "origin")})
    except KeyError as error:
        raise _damaged(path, f"it has no {error}") from error


def is_of_trainable(content: Any) -> bool:
    """Return True if ``content`` describes the model of a user-defined training."""
    return isinstance(content, Mapping) and content.get("format") == FORMAT and "trainable" in content


FILE = "file:"  # name prefix of the tensors of a TrainableSpec's model, which are files
SAVED = "saved"  # the folder of these files in an exported model


def write_files(content: bytes, folder: AnyPath) -> None:
    """Write the files in the ``content`` of a tensor file below ``folder``, a temporary one."""
    for path, part in files_in(content, folder).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(part)


def files_in(content: bytes, folder: AnyPath) -> dict[AnyPath, bytes]:
    """Return the files in the ``content`` of a tensor file, by their paths below ``folder``."""
    from safetensors.numpy import load

    files = {}
    for name, array in load(content).items():
        parts = name.removeprefix(FILE).split("/")
        if not {"", ".", ".."}.isdisjoint(parts):
            raise InvalidInput(f"The model has a file {name!r}, whose name leads out of its folder; restore the model.")
        files[folder.joinpath(*parts)] = array.tobytes()
    return files


FROZEN = "frozen_backbone"  # key in origin: the digest of a backbone that was not trained, and is not in the checkpoint


def frozen_backbone(digest: str | None) -> dict[str, str]:
    """Return the entry of ``origin`` for a frozen backbone, if there is one."""
    return {} if digest is None else {FROZEN: digest}


WEIGHTS, DESCRIPTION, CARD = "model.safetensors", "model.json", "README.md"


def write_model(folder: AnyPath, weights: bytes, spec: EmbedderSpec | TrainableSpec, card: str) -> None:
    """Write a model into ``folder``; ``weights`` is the content of a file of its network's tensors.

    The files of a user-defined training are written to the folder ``saved``, too. The description is moved there last,
    so a folder with a description is complete.
    """
    description = {**spec.to_json(), "weights_sha256": digest_of(weights)}
    files = files_in(weights, folder / SAVED) if isinstance(spec, TrainableSpec) else {}
    files |= {folder / WEIGHTS: weights, folder / CARD: card.encode()}
    files[folder / DESCRIPTION] = json_text(description).encode()
    write_together({path: methodcaller("write", content) for path, content in files.items()})


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFiles:
    """The tensors, description and card of the model at ``address``; a checkpoint of a search has no card.

    ``known_as`` is the address, as an absolute path if it is one, so that it is valid in any working folder.
    """

    address: str
    known_as: str
    tensors: "Mapping[str, Tensor]"
    description: Any
    card: str
    is_checkpoint: bool


def read_model(address: str) -> ModelFiles:
    """Read the model at ``address``, a path or a URL: a folder written by ``holdout export``, or a checkpoint."""
    path = given_path(address)
    is_checkpoint = path.suffix == ".safetensors"
    tensors, description, card = _checkpoint(path) if is_checkpoint else _folder(path)
    return ModelFiles(
        address=address, known_as=os.path.abspath(path) if isinstance(path, Path) else address,
        tensors=tensors, description=description, card=card, is_checkpoint=is_checkpoint,
    )  # fmt: skip


def _folder(path: AnyPath) -> "tuple[dict[str, Tensor], Any, str]":
    try:
        content = json.loads(read_regular(path / DESCRIPTION))
        weights = read_regular(path / WEIGHTS)
        card = (path / CARD).read_text("utf-8") if (path / CARD).is_file() else ""
    except OSError as error:
        raise InvalidInput(_no_model(path, error)) from error
    except DAMAGED as error:
        raise _damaged(path / DESCRIPTION, error) from error
    tensors, _ = parsed_tensors(weights, path / WEIGHTS)
    digest = digest_of(weights)
    if isinstance(content, dict) and content.get("weights_sha256", digest) != digest:
        raise InvalidInput(
            f"{path / WEIGHTS} is not the file that {DESCRIPTION} next to it describes (its SHA-256 is "
            f"{digest[:12]}…); export the model again."
        )
    return tensors, content, card


def _no_model(path: AnyPath, error: OSError) -> str:
    if (path / "search.yaml").is_file():
        return f"{path} is the folder of a search, not a model; `holdout export {path.name} --to FOLDER` writes one."
    if path.is_file():
        return (
            f"{path} is a file, and not in the safetensors format; other formats, which would have to be unpickled, "
            "are not read. Give a folder that `holdout export` wrote."
        )
    return (
        f"{path} is not a model: {DESCRIPTION} and {WEIGHTS} cannot be read there ({error.strerror or error}). Give a "
        "folder that `holdout export` wrote, or a checkpoint best.safetensors."
    )


def _checkpoint(path: AnyPath) -> "tuple[dict[str, Tensor], Any, str]":
    try:
        tensors, content = read_network(path)
    except OSError as error:
        raise InvalidInput(f"There is no model {path} ({error.strerror or error}).") from error
    if content is None:
        raise InvalidInput(f"{path} does not describe its network; give a model's folder, or a checkpoint of a search.")
    return tensors, content, ""


def not_trusted(address: str, kind: str, named: str) -> InvalidInput:
    """Return the error of a model whose user-defined network or training was not trusted."""
    return InvalidInput(
        f"The model {address} has a user-defined {kind}, {named}, whose code would be imported and run; if you trust "
        "it, give trust_code=True, or --trust-code."
    )
