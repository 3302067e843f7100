"""Backbones, pooling and the embedding network that combines them."""

from typing import TYPE_CHECKING

from trainables.models.backbones import BACKBONES
from trainables.models.config import HEAD_INIT, POOLING, ModelConfig
from trainables.parts import late_import

if TYPE_CHECKING:
    from trainables.models.embedding import EmbeddingModel

__getattr__ = late_import(__name__, {"EmbeddingModel": ".embedding"})
