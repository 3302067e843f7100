"""The networks that turn images into feature maps, by name."""

from collections.abc import Callable
from functools import cache

from torch import nn

from trainables.mistakes import Mistakes, suggestion
from trainables.models.backbone import IMAGENET_MEAN, IMAGENET_SCALE, Backbone, published
from trainables.models.bninception import BNInception
from trainables.models.convnet import ConvNet


def _torchvision(name: str) -> Callable[[], nn.Module]:
    """Builds torchvision's network; torchvision takes seconds to import, and who trains without it does not wait."""

    def build() -> nn.Module:
        from trainables.models.torchvision_networks import trunk

        return trunk(name)

    return build


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
        build=_torchvision("resnet18"),
        features=512,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/resnet18-f37072fd.pth"),
    ),
    "resnet50": Backbone(
        summary="ResNet-50 (He et al., 2016), from torchvision",
        build=_torchvision("resnet50"),
        features=2048,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/resnet50-0676ba61.pth"),
    ),
    # Its weights come from TensorFlow, where images were scaled to -1 … 1. The auxiliary classifiers are left out.
    "googlenet": Backbone(
        summary="GoogLeNet (Szegedy et al., 2015), from torchvision: with batch normalisation, 3×3 in place of 5×5",
        build=_torchvision("googlenet"),
        features=1024,
        mean=(0.5, 0.5, 0.5),
        scale=(0.5, 0.5, 0.5),
        imagenet=published("https://download.pytorch.org/models/googlenet-1378be20.pth"),
    ),
    "bninception": Backbone(
        summary="BN-Inception (Ioffe & Szegedy, 2015), Caffe's variant, as in most papers of metric learning",
        build=BNInception,
        features=BNInception.features,
        mean=(128 / 255, 117 / 255, 104 / 255),  # 0 … 255 less this is all that Caffe does
        scale=(1 / 255, 1 / 255, 1 / 255),
        bgr=True,
        imagenet=published("http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"),
    ),
    "densenet201": Backbone(
        summary="DenseNet-201 (Huang et al., 2017), from torchvision",
        build=_torchvision("densenet201"),
        features=1920,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/densenet201-c1103571.pth"),
    ),
}


def _torchvision_backbone(name: str) -> Backbone:
    from trainables.models.torchvision_networks import torchvision_backbone

    return torchvision_backbone(name)


def _timm_backbone(name: str) -> Backbone:
    from trainables.models.timm_networks import timm_backbone

    return timm_backbone(name)


LIBRARIES: dict[str, Callable[[str], Backbone]] = {"torchvision": _torchvision_backbone, "timm": _timm_backbone}


@cache
def backbone(name: str) -> Backbone:
    """The row of :data:`BACKBONES`, or what ``torchvision:NAME`` or ``timm:NAME`` is.

    Raises:
        Mistakes: there is no such network, or the library is not installed.
    """
    library, colon, network = name.partition(":")
    if colon and library in LIBRARIES:
        return LIBRARIES[library](network)
    if name not in BACKBONES:
        others = " or ".join(f"{library}:NAME" for library in LIBRARIES)
        raise Mistakes(
            f"model.backbone must be one of {', '.join(BACKBONES)}, or {others}; "
            f"it is {name!r}{suggestion(name, BACKBONES)}."
        )
    return BACKBONES[name]
