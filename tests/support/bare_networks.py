"""Features of the built-in network on pixels that Pillow cut, one image at a time: an independent path to them.

That larger networks are torchvision's is shown by the tests of networks; their weights would take most of the time.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from trainables.models import BACKBONES

BACKBONE, FEATURES = "convnet", 128

TRAINING = {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16, "resize_size": 20}
"""A training on images of 20 pixels, cut to the middle 16."""


def save_convnet(folder: Path) -> Path:
    """Write a file with the weights of a network that nobody trained, and a classifier as published files have it."""
    path = folder / "convnet.pth"
    with torch.random.fork_rng():
        torch.manual_seed(3)
        state = BACKBONES[BACKBONE].build().state_dict()
    torch.save({**state, "fc.weight": torch.zeros(2, FEATURES), "fc.bias": torch.zeros(2)}, path)
    return path


def bare_features(paths: Sequence[Path], weights: Path) -> NDArray[np.float64]:
    """Return the features of images of 20 pixels, cut to the middle 16; each image is computed once."""
    return np.array([_features(path, weights) for path in paths])


@cache
def _network(weights: Path) -> torch.nn.Module:
    network = BACKBONES[BACKBONE].build()
    state = torch.load(weights)
    network.load_state_dict({name: state[name] for name in network.state_dict()})
    return network.eval()


@cache
def _features(path: Path, weights: Path) -> NDArray[np.float64]:
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.float64)[2:18, 2:18] / 255
    batch = torch.tensor((2 * pixels - 1).transpose(2, 0, 1)[None], dtype=torch.float32)
    with torch.no_grad():
        return _network(weights)(batch)[0].mean((1, 2)).double().numpy()
