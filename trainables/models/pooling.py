"""Pooling by name: ``POOLING[name]()`` is a layer from maps [B, F, h, w] to vectors [B, F]."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trainables.parts import PartRow, PartTable

if TYPE_CHECKING:
    from torch import nn

_ROWS = {
    "avg": PartRow(path="trainables.models.pooling_layers:Average"),
    "max": PartRow(path="trainables.models.pooling_layers:Maximum"),
    "avg_max": PartRow(path="trainables.models.pooling_layers:AverageAndMaximum"),
    "gem": PartRow(path="trainables.models.pooling_layers:fixed_gem"),
    "gem_learned": PartRow(path="trainables.models.pooling_layers:learned_gem"),
}

POOLING: "PartTable[Callable[[], nn.Module], PartRow]" = PartTable("pooling", _ROWS)
