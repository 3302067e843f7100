"""Networks of torchvision and timm without their classifiers."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

from trainables.mistakes import Mistakes, suggestion
from trainables.models.backbones import Backbone, Published, published

# torchvision's classification networks without what follows their last maps, under torchvision's parameter names.

# What comes after the last maps has one of these names in every family: pooling, or the classifier of those that
# have none at the top (SqueezeNet, MaxViT, vision transformers).
HEADS = ("avgpool", "adaptive_avg_pool2d", "mean", "classifier", "heads")

# Trained on images scaled to -1 … 1; torchvision's own networks turn ImageNet's mean and scale into that on the way in.
INCEPTIONS = ("googlenet", "inception_v3")
OUTPUT = "maps"


def network(name: str) -> nn.Module:
    """The whole network with random weights, and without the auxiliary classifiers that Inceptions trained with."""
    options: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in INCEPTIONS else {}
    whole: nn.Module = models.get_model(name, weights=None, **options)
    return whole


def _before_the_head(nodes: list[str]) -> str:
    """The last node whose output is still maps, or the class token of a vision transformer."""
    return next(node for node, follower in pairwise(nodes) if follower.split(".")[0] in HEADS)


def _as_maps(module: nn.Module, images: tuple[Tensor], outputs: dict[str, Tensor]) -> Tensor:
    """The extractor's output; a vision transformer's vector [B, F] is a map of one position, [B, F, 1, 1]."""
    maps = outputs[OUTPUT]
    return maps[:, :, None, None] if maps.ndim == 2 else maps


def trunk(name: str) -> nn.Module:
    """The network ``name`` up to its last maps [B, F, h, w]."""
    whole = network(name)
    train, evaluation = (_before_the_head(nodes) for nodes in get_graph_node_names(whole))
    extractor = create_feature_extractor(
        whole, train_return_nodes={train: OUTPUT}, eval_return_nodes={evaluation: OUTPUT}
    )
    extractor.register_forward_hook(_as_maps)
    return extractor


def torchvision_backbone(name: str) -> Backbone:
    """What is known of torchvision's network ``name``; its number of features is found by a run without values.

    Raises:
        Mistakes: it is none of the classification networks.
    """
    known = models.list_models(module=models)
    if name not in known:
        reason = (
            "which classifies no images and so has no one last map; use a classification network"
            if name in models.list_models()
            else f"which torchvision does not have{suggestion(name, known)}"
        )
        raise Mistakes(f"model.backbone is 'torchvision:{name}', {reason}.")
    weights = models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    # A model's weights depend on the trial's seed, and not on what was asked before.
    with torch.random.fork_rng(devices=[]):
        extractor = trunk(name).eval().to("meta")
    maps = extractor(torch.empty(1, 3, *2 * transforms.crop_size, device="meta"))
    middle = name in INCEPTIONS
    return Backbone(
        summary=f"{name}, from torchvision",
        build=partial(trunk, name),
        features=maps.shape[1],
        mean=(0.5, 0.5, 0.5) if middle else tuple(transforms.mean),
        scale=(0.5, 0.5, 0.5) if middle else tuple(transforms.std),
        imagenet=published(weights.url),
    )


# timm's networks without their classifier, under timm's parameter names. timm is installed apart.

Hook = Callable[[nn.Module, tuple[Tensor], Tensor], Tensor]


def _as_they_are(module: nn.Module, images: tuple[Tensor], maps: Tensor) -> Tensor:
    return maps


def _channels_first(module: nn.Module, images: tuple[Tensor], maps: Tensor) -> Tensor:
    return maps.permute(0, 3, 1, 2)


def _one_position(module: nn.Module, images: tuple[Tensor], vectors: Tensor) -> Tensor:
    return vectors[:, :, None, None]


def _network(name: str, *, pooled: bool) -> nn.Module:
    network: nn.Module = importlib.import_module("timm").create_model(
        name, num_classes=0, **({} if pooled else {"global_pool": ""})
    )
    return network


def _build(name: str, hook: Hook) -> nn.Module:
    network = _network(name, pooled=hook is _one_position)
    network.register_forward_hook(hook)
    return network


def _output(name: str, sides: tuple[int, int], *, pooled: bool) -> tuple[int, ...]:
    """The shape of what comes out for one image, found without computing values."""
    network = _network(name, pooled=pooled).eval().to("meta")
    shape: tuple[int, ...] = network(torch.empty(1, 3, *sides, device="meta")).shape
    return shape


def _published(settings: Mapping[str, Any]) -> Published | None:
    if settings.get("hf_hub_id"):
        address = f"https://huggingface.co/{settings['hf_hub_id']}/resolve/main/model.safetensors"
        return Published(address=address, file=f"timm-{settings['architecture']}.{settings['tag']}.safetensors")
    return published(settings["url"]) if settings.get("url") else None


def timm_backbone(name: str) -> Backbone:
    """What is known of timm's network ``name``, with or without a tag for its weights (``resnet18.tv_in1k``).

    Networks that end in maps give them. What ends in a row of tokens, as most transformers do, is pooled by timm in
    its own way to a vector, a map of one position.

    Raises:
        Mistakes: timm is not installed, or has no such network.
    """
    try:
        timm = importlib.import_module("timm")
    except ModuleNotFoundError:
        raise Mistakes(f"model.backbone is 'timm:{name}', but timm is not installed: pip install timm.") from None
    known = [*timm.list_models(), *timm.list_pretrained()]
    if name not in known:
        raise Mistakes(f"model.backbone is 'timm:{name}', which timm does not have{suggestion(name, known)}.")
    settings = timm.get_pretrained_cfg(name).to_dict()
    sides = settings["input_size"][1:]
    # A model's weights depend on the trial's seed, and not on what was asked before.
    with torch.random.fork_rng(devices=[]):
        features = _output(name, sides, pooled=True)[1]
        shape = _output(name, sides, pooled=False)
    hook: Hook = _one_position
    if len(shape) == 4:
        hook = _as_they_are if shape[1] == features else _channels_first
    return Backbone(
        summary=f"{name}, from timm",
        build=partial(_build, name, hook),
        features=features,
        mean=settings["mean"],
        scale=settings["std"],
        imagenet=_published(settings),
    )
