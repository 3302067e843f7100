"""Half of the training images, which stand in the gallery that validation classes are ranked in.

A validation has few classes, so a value says as much about which classes they are as about the configuration. Images of
all training classes as further wrong neighbours make it more like the test's (``make bench-gallery``).

Shapes: N images of the half.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch

from trainables.data.store.view import StoreView


def training_half(view: StoreView, seed: int) -> StoreView:
    """Of every class of ``view`` the half of its images, rounded up, whose ``seed:key`` has the lowest SHA-256.

    So it depends on nothing but the images that there are, and a training of fewer classes has a part of the same half.
    """
    keys_of: dict[int, list[str]] = {}
    for key, label in zip(view.image_keys, view.labels_N.tolist(), strict=True):
        keys_of.setdefault(label, []).append(key)
    half = {key for keys in keys_of.values() for key in _lowest_half(keys, seed)}
    chosen_N = torch.tensor([key in half for key in view.image_keys])
    return replace(view, rows_N=view.rows_N[chosen_N], labels_N=view.labels_N[chosen_N])


def _lowest_half(keys: Sequence[str], seed: int) -> list[str]:
    hashed = sorted(keys, key=lambda key: hashlib.sha256(f"{seed}:{key}".encode()).digest())
    return hashed[: (len(keys) + 1) // 2]
