"""Features given to a model: an array or tensor, or a file of embeddings.

Legend: N items, F features.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from trainables.data.feature_file import SUFFIXES, read_features
from trainables.errors import InvalidInput
from trainables.given import numbers
from trainables.models.backbones import backbone
from trainables.models.config import ModelConfig


def given_features(items: object, model: ModelConfig) -> Tensor:
    """Return the features of ``items`` as float32 [N, F].

    Args:
        items: an array, a tensor or lists of numbers, [N, F] or [F] for one item; or the path of a file of embeddings.
        model: the network, which says how many features an item has.

    Raises:
        InvalidInput: they are something else, of another size, or not finite; or the file cannot be read.
    """
    expected = backbone(model.backbone).features
    if isinstance(items, str | os.PathLike):
        features_NF = torch.from_numpy(read_features(Path(items)).embeddings_NF)
    else:
        features_NF = torch.atleast_2d(_as_tensor(items))
    if features_NF.ndim != 2 or features_NF.shape[1] != expected or not len(features_NF):
        raise InvalidInput(
            f"The model takes {expected} features of each item, and they are of "
            f"{' × '.join(map(str, features_NF.shape))}; give items × {expected}."
        )
    if not features_NF.isfinite().all():
        raise InvalidInput("The features have numbers that are not finite; correct or remove them.")
    return features_NF


def _as_tensor(items: object) -> Tensor:
    try:
        return numbers(items, "items").float().cpu()
    except InvalidInput:
        raise InvalidInput(
            f"The model takes features and not images: give an array of items × features, or a file of embeddings "
            f"({', '.join(SUFFIXES)}); it is a {type(items).__name__}."
        ) from None


def names_of_features(items: object, count: int) -> Sequence[str]:
    """Return what ``count`` items are called: by their file, or ``row 0`` and so on."""
    if isinstance(items, str | os.PathLike):
        return read_features(Path(items)).names
    return [f"row {row}" for row in range(count)]
