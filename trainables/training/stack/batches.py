"""The batches of several trainings that learn from the same images, loaded as one.

Shapes: M members, B images a batch, S the images' side.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.data.augmentation.augment import AUGMENTATIONS, Frame
from trainables.data.augmentation.load import Images, cut


def load_together(
    images: Images,
    indices_MB: Tensor,
    augmentation: str,
    frame: Frame,
    *,
    device: torch.device,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """A batch of each member, float32 [M, B, 3, S, S], as :func:`load` gives it with the member's generator."""
    indices = indices_MB.flatten()
    crops = AUGMENTATIONS[augmentation](images.sizes(indices), frame, generators)
    return cut(images, indices, crops, device).unflatten(0, indices_MB.shape)
