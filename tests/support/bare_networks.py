"""Features of torchvision's own ResNet-18, on pixels that Pillow cut: an independent path to an untrained network."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torchvision
from numpy.typing import NDArray
from PIL import Image

TRAINING = {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16, "resize_size": 20}
"""A training on images of 20 pixels, cut to the middle 16."""

MEAN, SCALE = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def bare_features(paths: Sequence[Path], weights: Path) -> NDArray[np.float64]:
    """Return the features of images of 20 pixels, cut to the middle 16; each image is computed once."""
    return np.array([_features(path, weights) for path in paths])


@cache
def _network(weights: Path) -> torch.nn.Module:
    network = torchvision.models.resnet18(weights=None)
    network.load_state_dict(torch.load(weights))
    network.fc = torch.nn.Identity()
    return network.eval()


@cache
def _features(path: Path, weights: Path) -> NDArray[np.float64]:
    pixels = np.asarray(Image.open(path).convert("RGB"), dtype=np.float64)[2:18, 2:18] / 255
    batch = torch.tensor(((pixels - MEAN) / SCALE).transpose(2, 0, 1)[None], dtype=torch.float32)
    with torch.no_grad():
        return _network(weights)(batch)[0].double().numpy()
