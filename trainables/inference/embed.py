"""What a network makes of images: the one way for validation, the test, and whoever uses the model.

Shapes: N images, D embedding dimensions.
"""

import torch
from torch import Tensor, nn

from trainables.data.augmentation.augment import Frame
from trainables.data.augmentation.load import Images, load
from trainables.data.augmentation.prefetch import prefetched
from trainables.metrics.nearest import full_float32


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """bfloat16 where it is asked for, or where it is free (CUDA); float32 elsewhere."""
    bfloat16 = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=bfloat16)


@torch.inference_mode()
def embed(
    network: nn.Module, images: Images, frame: Frame, *, batch_size: int, device: torch.device, precision: str
) -> Tensor:
    """Raw embeddings of all images, [N, D] float32 on ``device``, each resized and cropped at its centre.

    Args:
        network: images [B, 3, H, W] in 0 … 1 to embeddings [B, D]; it is put into evaluation mode.
        images: decoded.
        frame: how they are cut.
        batch_size: so many at once. Another batch may change last bits.
        device: where the network is.
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
