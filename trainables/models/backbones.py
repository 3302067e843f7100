"""Backbones by name: networks from images to feature maps. Importing this module does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainables.common.errors import InvalidInput, Mistake, raise_if_any, suggestion
from trainables.common.part_tables import is_own, load_part, plain_name

if TYPE_CHECKING:
    from torch import nn


Colour = tuple[float, float, float]

IMAGENET_MEAN: Colour = (0.485, 0.456, 0.406)
IMAGENET_SCALE: Colour = (0.229, 0.224, 0.225)


ON_HUB = "model.safetensors"  # the file of weights in a repository of timm


@dataclass(frozen=True, kw_only=True)
class Published:
    """Published weights: the ``address``, the name of the local ``file``, and the repository on Hugging Face's hub."""

    address: str
    file: str
    hub: str | None = None


def published(address: str) -> Published:
    """Return published weights whose local file has the name in ``address``."""
    return Published(address=address, file=address.rpartition("/")[2])


@dataclass(frozen=True, kw_only=True)
class EvaluationCrop:
    """The centre crop with which weights were evaluated: ``side`` pixels, the share ``crop_pct`` of the short side."""

    side: int
    crop_pct: float
    interpolation: str

    def resize_size(self, image_size: int) -> int:
        """Return the short side before a crop of ``image_size`` pixels, rounded down as by timm."""
        return int(image_size / self.crop_pct)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """Description of a network: ``build()`` returns a new module from images [B, 3, H, W] to maps [B, F, h, w].

    ``features`` is F. The module's input is (image − ``mean``) / ``scale`` for images in 0 … 1 and both in the order
    red, green, blue, then with the channels reversed if ``bgr``. ``imagenet`` are its published ImageNet weights.
    ``numbers`` is the size of its state (weights and running statistics), if known before it is built. With ``vectors``
    the input is not images but features [B, F], which are neither normalised nor pooled. ``tokens()``, if the network
    has a class token, returns a module with the same parameters from images to tokens [B, 1 + T, F], the class token
    first. ``crop`` is how its weights were evaluated. ``variants`` are other networks that its weights fit too.
    """

    summary: str
    build: "Callable[[], nn.Module]"
    features: int
    mean: Colour
    scale: Colour
    bgr: bool = False
    imagenet: Published | None = None
    numbers: int | None = None
    vectors: bool = False
    tokens: "Callable[[], nn.Module] | None" = None
    crop: EvaluationCrop | None = None
    variants: tuple[str, ...] = ()


def _built_by(path: str, *arguments: str) -> "Callable[[], nn.Module]":
    """Return a function that imports ``path`` late (torch and torchvision take seconds) and calls it."""

    def build() -> "nn.Module":
        return load_part(path, kind="backbone")(*arguments)

    return build


def _of_torchvision(name: str, summary: str, *, features: int, numbers: int, file: str, half: bool = False) -> Backbone:
    """Describe torchvision's network ``name``; with ``half``, images are scaled to -1 … 1."""
    return Backbone(
        summary=summary,
        build=_built_by("trainables.models.library_networks:trunk", name),
        features=features,
        numbers=numbers,
        mean=(0.5, 0.5, 0.5) if half else IMAGENET_MEAN,
        scale=(0.5, 0.5, 0.5) if half else IMAGENET_SCALE,
        imagenet=published(f"https://download.pytorch.org/models/{file}"),
    )


BACKBONES: dict[str, Backbone] = {
    "convnet": Backbone(
        summary="four convolutions for images of 28 to 64 pixels, fast on a CPU",
        build=_built_by("trainables.models.networks:ConvNet"),
        features=128,
        numbers=104_804,
        mean=(0.5, 0.5, 0.5),
        scale=(0.5, 0.5, 0.5),
    ),
    "resnet18": _of_torchvision(
        "resnet18", "ResNet-18 (He et al., 2016), from torchvision",
        features=512, numbers=11_186_132, file="resnet18-f37072fd.pth",
    ),
    "resnet50": _of_torchvision(
        "resnet50", "ResNet-50 (He et al., 2016), from torchvision",
        features=2048, numbers=23_561_205, file="resnet50-0676ba61.pth",
    ),
    # weights from TensorFlow, where images were scaled to -1 … 1; without the auxiliary classifiers
    "googlenet": _of_torchvision(
        "googlenet",
        "GoogLeNet (Szegedy et al., 2015), from torchvision: with batch normalisation, 3×3 instead of 5×5",
        features=1024, numbers=5_614_521, file="googlenet-1378be20.pth", half=True,
    ),
    "bninception": Backbone(
        summary="BN-Inception (Ioffe & Szegedy, 2015), Caffe's variant, as in most papers of metric learning",
        build=_built_by("trainables.models.networks:BNInception"),
        features=1024,
        numbers=10_290_341,
        mean=(128 / 255, 117 / 255, 104 / 255),  # Caffe subtracts a mean from 0 … 255 and does not scale
        scale=(1 / 255, 1 / 255, 1 / 255),
        bgr=True,
        imagenet=published("http://data.lip6.fr/cadene/pretrainedmodels/bn_inception-52deb4733.pth"),
    ),
    "densenet201": _of_torchvision(
        "densenet201", "DenseNet-201 (Huang et al., 2017), from torchvision",
        features=1920, numbers=18_322_185, file="densenet201-c1103571.pth",
    ),
}  # fmt: skip


def features_backbone(number: str) -> Backbone:
    """Describe the backbone of data that are features already, ``number`` of them: it changes nothing."""
    if not (number.isascii() and number.isdigit() and int(number) >= 1):
        raise InvalidInput(f"model.backbone is '{FEATURES}:{number}'; after the colon give the number of features.")
    return Backbone(
        summary="none: the data are features",
        build=_built_by("torch.nn:Identity"),
        features=int(number),
        numbers=0,
        mean=(0.0, 0.0, 0.0),
        scale=(1.0, 1.0, 1.0),
        vectors=True,
    )


FEATURES = "features"

LIBRARIES = {
    "torchvision": "trainables.models.library_networks:torchvision_backbone",
    "timm": "trainables.models.library_networks:timm_backbone",
    FEATURES: f"{__name__}:features_backbone",
}
"""Path of the function that describes any network of a library, by the library's name."""


def is_own_network(name: str) -> bool:
    """Return True if the backbone ``name`` is a user's code, and not one of a library."""
    return is_own(name) and name.partition(":")[0] not in LIBRARIES


def is_of_timm(name: str) -> bool:
    """Return True if the backbone ``name`` is a network of timm."""
    return name.partition(":")[0] == "timm"


def on_features(name: str) -> bool:
    """Return True if the input of the backbone ``name`` is features, and not images."""
    return name.partition(":")[0] == FEATURES


def backbone_problems(name: str) -> list[Mistake]:
    """Return a mistake for a name that is neither built-in nor has a colon. Nothing is imported."""
    if name in BACKBONES or is_own(name):
        return []
    others = ", ".join(f"{library}:NAME" for library in LIBRARIES if library != FEATURES)
    own = "the import path of your own, such as mylab.networks:TinyNet"
    found = f"it is {name!r}{suggestion(name, BACKBONES)}"
    return [Mistake("backbone", f"must be one of {', '.join(BACKBONES)}, or {others} or {own}", found)]


@cache
def backbone(name: str) -> Backbone:
    """Return a built-in backbone, ``torchvision:NAME``, ``timm:NAME``, or a user-defined one by its import path."""
    raise_if_any([mistake.below("model") for mistake in backbone_problems(name)])
    library, _, network = name.partition(":")
    if library == "timm" and find_spec("timm") is None:  # before PyTorch is imported
        raise InvalidInput(f"model.backbone is {name!r}, but timm is not installed: pip install timm.")
    if library in LIBRARIES:
        describe: Any = load_part(LIBRARIES[library])
        return describe(network)
    return BACKBONES[name] if name in BACKBONES else _own_backbone(name)


def _own_backbone(path: str) -> Backbone:
    """Load a user-defined backbone: a :class:`Backbone`, or a class or function with its fields as attributes."""
    part: Any = load_part(path, kind="backbone")
    if isinstance(part, Backbone):
        return part
    features = getattr(part, "features", None)
    if not callable(part) or type(features) is not int or features < 1:
        raise InvalidInput(
            f"The backbone {path!r} must be a class or function that builds a module, with an attribute features, the "
            f"number of its channels, such as `features = 128`; it is {part!r:.100} and features is {features!r}."
        )
    return Backbone(
        summary=(part.__doc__ or plain_name(part)).splitlines()[0],
        build=part,
        features=features,
        mean=tuple(getattr(part, "mean", (0.0, 0.0, 0.0))),
        scale=tuple(getattr(part, "scale", (1.0, 1.0, 1.0))),
        bgr=getattr(part, "bgr", False),
        tokens=getattr(part, "tokens", None),
    )
