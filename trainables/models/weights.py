"""Initial weights of a backbone, from a file.

Nothing is downloaded: trials start on many machines at once, often without internet access.
"""

import importlib
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.mistakes import Mistakes, raise_if_any
from trainables.models.backbones import Published, backbone
from trainables.models.config import IMAGENET, ModelConfig, no_imagenet_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

SHOWN = 5  # names in an error

# outdated parameter names in published files: DenseNet's, and those of vision transformers
FORMER_NAMES = (
    (re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)"), r"\1\2"),
    (re.compile(r"\.mlp\.linear_1\."), ".mlp.0."),
    (re.compile(r"\.mlp\.linear_2\."), ".mlp.3."),
)


def weights_path(weights: Published) -> Path:
    """Return the local path of published weights, in the cache directory of ``torch.hub``, as torchvision's."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", f"{cache}/torch")
    return Path(home, "hub", "checkpoints", weights.file).expanduser()


def weights_file(config: ModelConfig) -> Path | None:
    """Return the file with initial weights, None for random ones.

    Raises:
        Mistakes: the file is missing; for ImageNet weights the error says what to download and where to put it.
    """
    if config.weights is None:
        return None
    if config.weights != IMAGENET:
        path = Path(config.weights)
        if not path.is_file():
            raise Mistakes(f"model.weights is {config.weights!r}, not a file. Give a file, 'imagenet' or null.")
        return path
    imagenet = backbone(config.backbone).imagenet
    if imagenet is None:
        raise Mistakes(no_imagenet_weights(config.backbone))
    path = weights_path(imagenet)
    if not path.is_file():
        raise Mistakes(
            f"The ImageNet weights of {config.backbone} are not on this machine. Download {imagenet.address} to {path}."
        )
    return path


def _tensors(path: Path) -> "dict[str, Tensor]":
    import torch  # late: `holdout backbones` uses this module without torch

    if path.suffix == ".safetensors":
        try:
            safetensors = importlib.import_module("safetensors.torch")
        except ModuleNotFoundError:
            raise Mistakes(f"{path} needs the package safetensors: pip install safetensors.") from None
        read = safetensors.load_file
    else:
        read = partial(torch.load, map_location="cpu", weights_only=True)
    try:
        content = read(path)
    except (OSError, RuntimeError) as error:
        raise Mistakes(f"The weights in {path} cannot be read: {str(error).splitlines()[0]}") from error
    except Exception as error:  # a file that is not a pickle may raise anything in the unpickler
        raise Mistakes(  # without PyTorch's reason, which advises to load code from the file
            f"The weights in {path} cannot be read: it is not a file of tensors alone. Save a network's state_dict() "
            "with torch.save or safetensors."
        ) from error
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise Mistakes(f"{path} does not hold named tensors. Save a network's state_dict() and nothing else.")
    return dict(content)


def load_weights(backbone: "nn.Module", path: Path) -> None:
    """Load the weights of ``backbone`` from a file of named tensors; others, such as a classifier's, are ignored.

    Raises:
        Mistakes: the file cannot be read, or tensors of the backbone are missing or have another shape.
    """
    found = {_present_name(name): tensor for name, tensor in _tensors(path).items()}
    state = backbone.state_dict()
    # integer tensors, such as batch counters and index tables, are kept: they are never learned
    needed = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    for name in needed.keys() & found.keys():
        if found[name].shape == (1, *needed[name].shape):  # vectors converted from Caffe
            found[name] = found[name][0]
    missing = [name for name in needed if name not in found]
    other = [
        f"{name} (needs {list(tensor.shape)}, found {list(found[name].shape)})"
        for name, tensor in needed.items()
        if name in found and tensor.shape != found[name].shape
    ]
    sentences = [
        f"{len(names)} of the {len(needed)} tensors that the backbone needs {what} in {path}: "
        f"{', '.join(names[:SHOWN])}{' …' if len(names) > SHOWN else ''}. Give the weights of this backbone."
        for what, names in (("are missing", missing), ("have another shape", other))
        if names
    ]
    raise_if_any(sentences)
    backbone.load_state_dict({**state, **{name: found[name] for name in needed}})


def _present_name(name: str) -> str:
    for former, present in FORMER_NAMES:
        name = former.sub(present, name)
    return name
