"""The networks that turn images into feature maps, by name."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from trainables.mistakes import Mistakes, suggestion
from trainables.models.backbone import IMAGENET_MEAN, IMAGENET_SCALE, Backbone, published
from trainables.models.own_backbone import own_backbone
from trainables.parts import is_own, load_part

if TYPE_CHECKING:
    from torch import nn


def _built_by(path: str, *arguments: str) -> "Callable[[], nn.Module]":
    """Builds a network out of a module that is imported then: torch and torchvision take seconds."""

    def build() -> "nn.Module":
        network: nn.Module = load_part(path, kind="backbone")(*arguments)
        return network

    return build


def _torchvision(name: str) -> "Callable[[], nn.Module]":
    return _built_by("trainables.models.networks.torchvision_networks:trunk", name)


BACKBONES: dict[str, Backbone] = {
    "convnet": Backbone(
        summary="four convolutions for images of 28 to 64 pixels, fast on a CPU",
        build=_built_by("trainables.models.networks.convnet:ConvNet"),
        features=128,
        numbers=104_804,
        mean=(0.5, 0.5, 0.5),
        scale=(0.5, 0.5, 0.5),
    ),
    "resnet18": Backbone(
        summary="ResNet-18 (He et al., 2016), from torchvision",
        build=_torchvision("resnet18"),
        features=512,
        numbers=11_186_132,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/resnet18-f37072fd.pth"),
    ),
    "resnet50": Backbone(
        summary="ResNet-50 (He et al., 2016), from torchvision",
        build=_torchvision("resnet50"),
        features=2048,
        numbers=23_561_205,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/resnet50-0676ba61.pth"),
    ),
    # Its weights come from TensorFlow, where images were scaled to -1 … 1. The auxiliary classifiers are left out.
    "googlenet": Backbone(
        summary="GoogLeNet (Szegedy et al., 2015), from torchvision: with batch normalisation, 3×3 instead of 5×5",
        build=_torchvision("googlenet"),
        features=1024,
        numbers=5_614_521,
        mean=(0.5, 0.5, 0.5),
        scale=(0.5, 0.5, 0.5),
        imagenet=published("https://download.pytorch.org/models/googlenet-1378be20.pth"),
    ),
    "bninception": Backbone(
        summary="BN-Inception (Ioffe & Szegedy, 2015), Caffe's variant, as in most papers of metric learning",
        build=_built_by("trainables.models.networks.bninception:BNInception"),
        features=1024,
        numbers=10_290_341,
        mean=(128 / 255, 117 / 255, 104 / 255),  # 0 … 255 less this is all that Caffe does
        scale=(1 / 255, 1 / 255, 1 / 255),
        bgr=True,
        imagenet=published("http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"),
    ),
    "densenet201": Backbone(
        summary="DenseNet-201 (Huang et al., 2017), from torchvision",
        build=_torchvision("densenet201"),
        features=1920,
        numbers=18_322_185,
        mean=IMAGENET_MEAN,
        scale=IMAGENET_SCALE,
        imagenet=published("https://download.pytorch.org/models/densenet201-c1103571.pth"),
    ),
}


LIBRARIES: dict[str, str] = {
    "torchvision": "trainables.models.networks.torchvision_networks:torchvision_backbone",
    "timm": "trainables.models.networks.timm_networks:timm_backbone",
}
"""What describes any network of a library, by the library's name."""


def backbone_problems(name: str) -> list[str]:
    """The sentence on a name that is neither a row's nor one with a colon; nothing is imported."""
    if name in BACKBONES or is_own(name):
        return []
    others = ", ".join(f"{library}:NAME" for library in LIBRARIES)
    return [
        f"model.backbone must be one of {', '.join(BACKBONES)}, or {others} or the import path of your own, such as "
        f"mylab.networks:TinyNet; it is {name!r}{suggestion(name, BACKBONES)}."
    ]


@cache
def backbone(name: str) -> Backbone:
    """The row of :data:`BACKBONES`, what ``torchvision:NAME`` or ``timm:NAME`` is, or one's own by its import path.

    Raises:
        Mistakes: there is no such network, or the library is not installed.
    """
    if problems := backbone_problems(name):
        raise Mistakes(problems)
    library, _, network = name.partition(":")
    if library in LIBRARIES:
        describe: Any = load_part(LIBRARIES[library])
        found: Backbone = describe(network)
        return found
    return BACKBONES[name] if name in BACKBONES else own_backbone(name)
