"""Does a network work? Asked before anything is created, since every trial would fail alike."""

from functools import cache

import torch

from trainables.mistakes import Mistakes
from trainables.models.config import ModelConfig
from trainables.models.embedding import EmbeddingModel


@cache  # the searches of a campaign share their networks
def smoke_test(config: ModelConfig, image_size: int) -> None:
    """Build the network, with its initial weights, and embed one black image of ``image_size`` pixels.

    Raises:
        Mistakes: the weights are not there or do not fit, or the network cannot take images of this size.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        model = EmbeddingModel(config).eval()
        try:
            model(torch.zeros(1, 3, image_size, image_size))
        except (RuntimeError, AssertionError) as error:
            raise Mistakes(
                f"training.image_size is {image_size}, and {config.backbone} cannot take such images: {error}"
            ) from error
