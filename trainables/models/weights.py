"""Initial weights of a backbone, from a file.

Nothing is downloaded here: trials start on many machines at once, and often without a way out.
"""

import importlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from trainables.mistakes import Mistakes, raise_if_any
from trainables.models.backbones import BACKBONES
from trainables.models.config import IMAGENET, ModelConfig

SHOWN = 5


def weights_file(config: ModelConfig) -> Path | None:
    """The file that initialises the backbone, if any.

    Raises:
        Mistakes: it is not there; for ImageNet weights, what to fetch and where to put it.
    """
    if config.weights is None:
        return None
    if config.weights != IMAGENET:
        path = Path(config.weights)
        if not path.is_file():
            raise Mistakes(f"model.weights is {config.weights!r}, no file. Give a file, 'imagenet' or null.")
        return path
    address = BACKBONES[config.backbone].imagenet
    assert address is not None, "ModelConfig lets ImageNet weights pass only where there are some"
    path = Path(torch.hub.get_dir(), "checkpoints", address.rsplit("/", 1)[1])  # torchvision's place too
    if not path.is_file():
        raise Mistakes(
            f"The ImageNet weights of {config.backbone} are not on this machine. Fetch {address} and put it at {path}."
        )
    return path


def _tensors(path: Path) -> dict[str, Tensor]:
    errors: tuple[type[Exception], ...] = (OSError, RuntimeError, ValueError, EOFError, UnpicklingError)
    if path.suffix == ".safetensors":
        try:
            safetensors = importlib.import_module("safetensors.torch")
        except ModuleNotFoundError:
            raise Mistakes(f"{path} needs the package safetensors: pip install safetensors.") from None
        read = safetensors.load_file
        errors = (*errors, importlib.import_module("safetensors").SafetensorError)
    else:
        read = partial(torch.load, map_location="cpu", weights_only=True)
    try:
        content = read(path)
    except errors as error:
        reason = (str(error) or "the file is cut off").splitlines()[0]
        raise Mistakes(f"The weights in {path} cannot be read: {reason}") from error
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise Mistakes(f"{path} does not hold named tensors. Save a network's state_dict() and nothing else.")
    return dict(content)


def load_weights(backbone: nn.Module, path: Path) -> None:
    """Fill ``backbone`` from a file of named tensors. Others there, such as a classifier's, are left out.

    Raises:
        Mistakes: the file cannot be read, or lacks tensors of the backbone, or holds them in other shapes.
    """
    found = _tensors(path)
    needed = backbone.state_dict()
    # Files older than PyTorch 0.4.1 do not count batches, and nothing here uses the count.
    missing = [name for name in needed if name not in found and not name.endswith("num_batches_tracked")]
    other = [
        f"{name} (needs {list(needed[name].shape)}, found {list(tensor.shape)})"
        for name, tensor in found.items()
        if name in needed and tensor.shape != needed[name].shape
    ]
    sentences = [
        f"{len(names)} of the {len(needed)} tensors that the backbone needs {what} in {path}: "
        f"{', '.join(names[:SHOWN])}{' …' if len(names) > SHOWN else ''}. Give the weights of this backbone."
        for what, names in (("are missing", missing), ("have another shape", other))
        if names
    ]
    raise_if_any(sentences)
    backbone.load_state_dict({name: found.get(name, tensor) for name, tensor in needed.items()})
