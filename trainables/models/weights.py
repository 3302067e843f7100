"""Initial weights of a backbone, from a file.

Nothing is downloaded here: trials start on many machines at once, and often without a way out.
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

SHOWN = 5

# Names in published files that the networks have since given up: DenseNet's, and those of vision transformers.
FORMER_NAMES = (
    (re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)"), r"\1\2"),
    (re.compile(r"\.mlp\.linear_1\."), ".mlp.0."),
    (re.compile(r"\.mlp\.linear_2\."), ".mlp.3."),
)


def weights_path(weights: Published) -> Path:
    """Where published weights are looked for: where torchvision keeps them too, by the rule of ``torch.hub``."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("TORCH_HOME", f"{cache}/torch")
    return Path(home, "hub", "checkpoints", weights.file).expanduser()


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
    imagenet = backbone(config.backbone).imagenet
    if imagenet is None:
        raise Mistakes(no_imagenet_weights(config.backbone))
    path = weights_path(imagenet)
    if not path.is_file():
        raise Mistakes(
            f"The ImageNet weights of {config.backbone} are not on this machine. "
            f"Fetch {imagenet.address} and put it at {path}."
        )
    return path


def _tensors(path: Path) -> "dict[str, Tensor]":
    import torch  # here, since `holdout backbones` asks this module where weights lie

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
    except Exception as error:  # what is no pickle at all makes the unpickler stumble anywhere
        reason = (str(error) or "the file is cut off").splitlines()[0]
        raise Mistakes(f"The weights in {path} cannot be read: {reason}") from error
    if not isinstance(content, Mapping) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise Mistakes(f"{path} does not hold named tensors. Save a network's state_dict() and nothing else.")
    return dict(content)


def load_weights(backbone: "nn.Module", path: Path) -> None:
    """Fill ``backbone`` from a file of named tensors. Others there, such as a classifier's, are left out.

    Raises:
        Mistakes: the file cannot be read, or lacks tensors of the backbone, or holds them in other shapes.
    """
    found = {_present_name(name): tensor for name, tensor in _tensors(path).items()}
    state = backbone.state_dict()
    # Whole numbers, such as counts of batches and tables of indices, are the network's own and never learnt.
    needed = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
    for name in needed.keys() & found.keys():
        if found[name].shape == (1, *needed[name].shape):  # so are vectors stored that were ported from Caffe
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
