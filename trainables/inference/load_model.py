"""A model from disk, as something that embeds images."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.files.storage import AnyPath
from trainables.files.whole import DAMAGED, given_path
from trainables.inference.embedder import Embedder
from trainables.inference.embedder_spec import EmbedderSpec
from trainables.inference.model_folder import CARD, DESCRIPTION, WEIGHTS
from trainables.inference.tensors_file import parsed_tensors, read_network
from trainables.mistakes import Mistakes
from trainables.models.backbones import LIBRARIES
from trainables.models.embedding import EmbeddingModel
from trainables.parts import is_own


def load_model(address: str, *, device: str | torch.device | None = None, trust_code: bool = False) -> Embedder:
    """The model at ``address``, a path or a URL: a folder that ``holdout export`` made, or a checkpoint.

    Args:
        address: as ``birds-mpa``, ``s3://bucket/birds-mpa`` or ``…/attempt-1/best.safetensors``.
        device: where to compute; by default a GPU where there is one.
        trust_code: whether the code of a network of one's own, which the model names, may be imported and run.

    Raises:
        Mistakes: there is no model, it is of another format or damaged, it names code that is not trusted, or this
            machine has no such device.
    """
    where = _device(device)
    path = given_path(address)
    tensors, content, card = _checkpoint(path) if path.suffix == ".safetensors" else _folder(path)
    spec = EmbedderSpec.from_json(content, address)
    _check_code(spec.model.backbone, address, trust_code)
    network = EmbeddingModel(spec.model)
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise Mistakes(f"The weights of {address} are not those of its network: {reason}") from error
    known_as = os.path.abspath(path) if isinstance(path, Path) else address  # which another folder's processes find
    return Embedder(network, spec, card, where, address=known_as)


def _device(asked: str | torch.device | None) -> torch.device:
    if asked is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=torch.device(asked)).device
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise Mistakes(
            f"device is {str(asked)!r}, where nothing can be computed here ({reason}); give cpu, or leave it out."
        ) from error


def _folder(path: AnyPath) -> tuple[dict[str, Tensor], Any, str]:
    try:
        content = json.loads((path / DESCRIPTION).read_text())
        weights = (path / WEIGHTS).read_bytes()
        digest = hashlib.sha256(weights).hexdigest()
        tensors, _ = parsed_tensors(weights, path / WEIGHTS)
        card = (path / CARD).read_text() if (path / CARD).is_file() else ""
    except OSError as error:
        raise Mistakes(_no_model(path, error)) from error
    except Mistakes:
        raise
    except DAMAGED as error:
        raise Mistakes(f"{path / DESCRIPTION} is damaged ({error}); export the model again.") from error
    if isinstance(content, dict) and content.get("weights_sha256", digest) != digest:
        raise Mistakes(
            f"{path / WEIGHTS} is not the file that {DESCRIPTION} beside it describes (its SHA-256 is {digest[:12]}…); "
            "export the model again."
        )
    return tensors, content, card


def _no_model(path: AnyPath, error: OSError) -> str:
    if (path / "search.yaml").is_file():
        return f"{path} is the folder of a search, and no model: `holdout export {path.name} --to FOLDER` makes one."
    if path.is_file():
        return (
            f"{path} is a file, and not in the form of safetensors; weights of other kinds, which would have to be "
            "unpickled, are not read. Give a folder that `holdout export` made."
        )
    return (
        f"{path} is no model: {DESCRIPTION} and {WEIGHTS} cannot be read there ({error.strerror or error}). Give a "
        "folder that `holdout export` made, or a checkpoint best.safetensors."
    )


def _checkpoint(path: AnyPath) -> tuple[dict[str, Tensor], Any, str]:
    try:
        tensors, content = read_network(path)
    except OSError as error:
        raise Mistakes(f"There is no model {path} ({error.strerror or error}).") from error
    if content is None:
        raise Mistakes(
            f"{path} does not say which network it is of; give a model's folder, or a checkpoint of a search."
        )
    return tensors, content, ""


def _check_code(backbone: str, address: str, trusted: bool) -> None:
    own = is_own(backbone) and backbone.partition(":")[0] not in LIBRARIES
    if own and not trusted:
        raise Mistakes(
            f"The model {address} has a network of its own, {backbone}, whose code would be imported and run; where "
            "you trust it, say so: trust_code=True, or --trust-code."
        )
