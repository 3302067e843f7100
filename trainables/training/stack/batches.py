"""The batches of several trainings that learn from the same images, loaded as one.

Shapes: M members, B images a batch, T steps of an epoch, S the images' side.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.data.augmentation.augment import AUGMENTATIONS, Frame
from trainables.data.augmentation.load import Images, cut
from trainables.data.augmentation.resample import Crops


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
    draw = AUGMENTATIONS[augmentation]
    drawn = [draw(images.sizes(indices_B), frame, generator) for indices_B, generator in zip(indices_MB, generators)]
    crops = Crops(
        boxes_B4=torch.cat([crops.boxes_B4 for crops in drawn]),
        reach_B4=torch.cat([crops.reach_B4 for crops in drawn]),
        flips_B=torch.cat([crops.flips_B for crops in drawn]),
        side=frame.side,
    )
    return cut(images, indices_MB.flatten(), crops, device).unflatten(0, indices_MB.shape)
