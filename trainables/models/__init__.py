"""Backbones, pooling and the embedding network that combines them."""

from trainables.models.backbones import BACKBONES
from trainables.models.config import HEAD_INIT, POOLING, ModelConfig
