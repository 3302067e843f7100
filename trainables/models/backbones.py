"""The networks that turn images into feature maps, and what each expects of its input."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from trainables.models.convnet import ConvNet

Colour = tuple[float, float, float]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_SCALE: Colour = (0.229, 0.224, 0.225)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """``build()`` gives a fresh module from images [B, 3, H, W] to maps [B, ``features``, h, w].

    The module wants images in 0 … 1 less ``mean``, over ``scale``. ``imagenet`` is the address of its
    ImageNet weights, where somebody publishes them.
    """

    summary: str
    build: Callable[[], nn.Module]
    features: int
    mean: Colour
    scale: Colour
    imagenet: str | None = None


# torchvision takes seconds to import: who trains another network, or none, does not wait for it.
def _resnet18() -> nn.Module:
    from trainables.models.resnet import resnet18

    return resnet18()


def _resnet50() -> nn.Module:
    from trainables.models.resnet import resnet50

    return resnet50()


BACKBONES: dict[str, Backbone] = {
    "convnet": Backbone(
        summary="four convolutions for images of 28 to 64 pixels, fast on a CPU",
        build=ConvNet,
        features=ConvNet.features,
        mean=(0.5, 0.5, 0.5),
        scale=(0.5, 0.5, 0.5),
    ),
    "resnet18": Backbone(
        summary="ResNet-18 (He et al., 2016), from torchvision",
        build=_resnet18,
        features=512,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet="https://download.pytorch.org/models/resnet18-f37072fd.pth",
    ),
    "resnet50": Backbone(
        summary="ResNet-50 (He et al., 2016), from torchvision",
        build=_resnet50,
        features=2048,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet="https://download.pytorch.org/models/resnet50-0676ba61.pth",
    ),
}
