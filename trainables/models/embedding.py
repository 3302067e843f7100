"""The embedding network: a backbone, and a head that pools and projects.

Shapes: B batch, N images, H and W pixels, D embedding.
"""

from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.data.augment import Frame
from trainables.data.loading import Images, load, prefetched
from trainables.metrics.ranking import full_float32
from trainables.mistakes import Mistakes
from trainables.models.backbones import backbone
from trainables.models.config import HEAD_INIT, POOLING, STATISTICS, ModelConfig
from trainables.models.weights import load_weights, weights_file


class EmbeddingModel(nn.Module):
    """Network from images [B, 3, H, W] in 0 … 1 to embeddings [B, D], not normalised.

    ``backbone`` and ``head`` (pooling, optional layer norm, projection) hold all its parameters.

    Raises:
        Mistakes: the initial weights are missing or belong to another network.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        path = weights_file(config)
        row = backbone(config.backbone)
        self.backbone = row.build()
        if path is not None:
            load_weights(self.backbone, path)
        norm = nn.LayerNorm(row.features, elementwise_affine=False) if config.layer_norm else nn.Identity()
        projection = nn.Linear(row.features, config.embedding_dim)
        HEAD_INIT[config.head_init](projection)
        self.head = nn.Sequential(POOLING[config.pooling](), norm, projection)
        self.register_buffer("mean", torch.tensor(row.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("scale", torch.tensor(row.scale).view(3, 1, 1), persistent=False)
        self._bgr = row.bgr
        self._frozen = [module for module in self.backbone.modules() if isinstance(module, _BatchNorm)]
        if not config.freeze_bn:
            self._frozen = []
        for module in self._frozen:
            module.requires_grad_(config.freeze_bn == STATISTICS)
        # convolutions are up to 1.4 times as fast on a CPU, and faster on a GPU too
        self.to(memory_format=torch.channels_last)
        self.train()

    def train(self, mode: bool = True) -> "EmbeddingModel":
        """Set the training mode, except for frozen batch normalisation, which stays in evaluation mode."""
        super().train(mode)
        for module in self._frozen:
            module.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Embed images [B, 3, H, W] in 0 … 1 as [B, D]."""
        images = (images - self.mean) / self.scale
        embeddings_BD: Tensor = self.head(self.backbone(images.flip(1) if self._bgr else images))
        return embeddings_BD


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return an autocast context: bfloat16 for ``bfloat16``, or for ``auto`` on CUDA; otherwise float32."""
    bfloat16 = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16)


@torch.inference_mode()
def embed(
    network: nn.Module, images: Images, frame: Frame, *, batch_size: int, device: torch.device, precision: str
) -> Tensor:
    """Compute raw embeddings of all images, [N, D] float32 on ``device``, each resized and cropped at its centre.

    Validation, the test and inference all use this function.

    Args:
        network: from images [B, 3, H, W] in 0 … 1 to embeddings [B, D]; it is set to evaluation mode.
        images: decoded images.
        frame: their resizing and cropping.
        batch_size: images per batch. It may change the last bits of results.
        device: device of the network.
        precision: ``float32`` (on a GPU without TF32), ``bfloat16``, or ``auto`` for bfloat16 on CUDA.
    """
    network.eval()
    chunks = []
    batches = torch.arange(len(images)).split(batch_size)
    for (batch,) in prefetched(batches, lambda indices: (load(images, indices, "none", frame, device=device),), device):
        with autocast(device, precision), full_float32():
            embeddings_BD = network(batch)
        chunks.append(embeddings_BD.float())
    return torch.cat(chunks)


@cache  # the searches of a campaign share their networks
def smoke_test(config: ModelConfig, image_size: int) -> None:
    """Build the network with its initial weights and embed one black image of ``image_size`` pixels.

    A search does this before it creates anything, since a network that does not work fails every trial.

    Raises:
        Mistakes: the weights are missing or do not fit, or the network does not accept images of this size.
    """
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        model = EmbeddingModel(config).eval()
        try:
            model(torch.zeros(1, 3, image_size, image_size))
        except (RuntimeError, AssertionError) as error:
            raise Mistakes(
                f"training.image_size is {image_size}, and {config.backbone} does not accept such images: {error}"
            ) from error
