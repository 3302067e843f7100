"""Whether the network can be built and takes the images: the one check that needs torch, so the last one."""

from search.config.search_config import SearchConfig
from search.plan.checks.findings import Findings
from trainables.models import ModelConfig

SMALLEST = 16
"""The side of the smallest images that the built-in network is known to take."""


def check_network(found: Findings, config: SearchConfig) -> None:
    """The network is built, with its weights, and embeds one image.

    What is sure to work is not tried: torch alone takes seconds to import.
    """
    if _is_sure(config.model, config.training.image_size):
        return
    if config.resources.gpus_per_trial > 1 and not config.model.freeze_bn:
        keys = ("model.backbone", "model.weights", "model.freeze_bn", "resources.gpus_per_trial")
        found.check(lambda: _common_statistics(config.model), *keys)
    if found.left_out.touched("training.image_size"):
        found.check(lambda: _weights(config.model), "model.backbone", "model.weights")
    else:
        found.check(lambda: _smoke_test(config), "model.backbone", "model.weights")


def _is_sure(model: ModelConfig, image_size: int) -> bool:
    return model.backbone == "convnet" and model.weights is None and image_size >= SMALLEST


def _weights(model: ModelConfig) -> None:
    from trainables.models.weights import weights_file

    weights_file(model)


def _common_statistics(model: ModelConfig) -> None:
    """Whether the network's batch normalisation can be that of several GPUs."""
    import torch

    from trainables.models.embedding import EmbeddingModel
    from trainables.training.distributed.batch_norm import take_common_statistics

    with torch.random.fork_rng(devices=[]):
        take_common_statistics(EmbeddingModel(model), torch.device("cpu"))


def _smoke_test(config: SearchConfig) -> None:
    from trainables.models.smoke_test import smoke_test

    smoke_test(config.model, config.training.image_size)
