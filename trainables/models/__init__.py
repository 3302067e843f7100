"""Backbones, pooling and the embedding network made of them."""

from trainables.models.backbones import BACKBONES
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel
from trainables.models.pooling import POOLING

__all__ = ["BACKBONES", "POOLING", "EmbeddingModel", "ModelConfig"]
