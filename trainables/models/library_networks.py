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

from trainables.common.errors import InvalidInput, suggestion
from trainables.models.backbones import ON_HUB, Backbone, EvaluationCrop, Published, published

# The node that follows the last maps in every family: pooling, or a classifier (SqueezeNet, MaxViT, transformers).
HEADS = ("avgpool", "adaptive_avg_pool2d", "mean", "classifier", "heads")

# Trained on images scaled to -1 … 1, which torchvision's versions compute from ImageNet's mean and scale.
INCEPTIONS = ("googlenet", "inception_v3")


def network(name: str) -> nn.Module:
    """Build the whole network with random weights, without the auxiliary classifiers of Inceptions."""
    options: dict[str, Any] = {"aux_logits": False, "init_weights": True} if name in INCEPTIONS else {}
    return models.get_model(name, weights=None, **options)


# The last nodes before it in training and evaluation, by network; symbolic traces take up to seconds.
BEFORE_THE_HEAD: dict[str, list[str]] = {}


def _up_to(whole: nn.Module, train: str, evaluation: str) -> nn.Module:
    """Return the part of a network up to these nodes, by its mode."""
    nodes = {train: "maps"}, {evaluation: "maps"}
    extractor = create_feature_extractor(whole, train_return_nodes=nodes[0], eval_return_nodes=nodes[1])
    extractor.register_forward_hook(_output_of)
    return extractor


def _output_of(module: nn.Module, images: tuple[Tensor], outputs: dict[str, Tensor]) -> Tensor:
    """Return maps or tokens; a vision transformer's vectors [B, F] become maps of one position, [B, F, 1, 1]."""
    found = outputs["maps"]
    return found[:, :, None, None] if found.ndim == 2 else found


def up_to_tokens(transformer: nn.Module) -> nn.Module:
    """Return the part of a vision transformer of torchvision from images to tokens [B, 1 + T, F]."""
    return _up_to(transformer, "encoder.ln", "encoder.ln")


def trunk(name: str) -> nn.Module:
    """Build the network ``name`` up to its last maps [B, F, h, w]."""
    whole = network(name)
    if name not in BEFORE_THE_HEAD:
        BEFORE_THE_HEAD[name] = [
            next(node for node, follower in pairwise(nodes) if follower.split(".")[0] in HEADS)
            for nodes in get_graph_node_names(whole)
        ]
    return _up_to(whole, *BEFORE_THE_HEAD[name])


def torchvision_backbone(name: str) -> Backbone:
    """Describe torchvision's network ``name``; a forward pass on the meta device gives the number of features."""
    known = models.list_models(module=models)
    if name not in known:
        reason = f"which torchvision does not have{suggestion(name, known)}"
        if name in models.list_models():
            reason = "which is not a classification network and has no single last map; use a classification network"
        raise InvalidInput(f"model.backbone is 'torchvision:{name}', {reason}.")
    weights = models.get_model_weights(name).DEFAULT
    transforms = weights.transforms()
    with torch.random.fork_rng(devices=[]):  # a trial's weights depend only on its seed
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
        tokens=(lambda: up_to_tokens(network(name))) if name.startswith("vit_") else None,
    )


# timm, an optional dependency: networks without their classifier, with timm's parameter names.


def _channels_first(module: nn.Module, images: tuple[Tensor], maps: Tensor) -> Tensor:
    return maps.permute(0, 3, 1, 2)


def _one_position(module: nn.Module, images: tuple[Tensor], vectors: Tensor) -> Tensor:
    return vectors[:, :, None, None]


def _without_registers(prefix: int, module: nn.Module, images: tuple[Tensor], tokens: Tensor) -> Tensor:
    return torch.cat((tokens[:, :1], tokens[:, prefix:]), dim=1)


def _network(name: str, hook: Callable[..., Tensor] | None = None, **options: str | bool) -> nn.Module:
    network: nn.Module = importlib.import_module("timm").create_model(name, num_classes=0, **options)
    if hook is not None:
        network.register_forward_hook(hook)
    return network


def _tokens(name: str, prefix: int, **options: bool) -> nn.Module:
    """Build a transformer up to its tokens, without the ``prefix`` − 1 between class token and patches."""
    network = _network(name, partial(_without_registers, prefix), **options)
    network.forward = network.forward_features  # type: ignore[assignment]  # the parameters keep timm's names
    return network


def _output(network: nn.Module, sides: tuple[int, int]) -> tuple[int, ...]:
    """Return the shape of the output for one image, from a forward pass on the meta device."""
    return network.eval().to("meta")(torch.empty(1, 3, *sides, device="meta")).shape


def _published(settings: Mapping[str, Any]) -> Published | None:
    if hub := settings.get("hf_hub_id"):
        file = f"timm-{settings['architecture']}.{settings['tag']}.safetensors"
        return Published(address=f"https://huggingface.co/{hub}/resolve/main/{ON_HUB}", file=file, hub=hub)
    return published(settings["url"]) if settings.get("url") else None


def timm_backbone(name: str) -> Backbone:
    """Describe timm's network ``name``, with or without a tag for its weights (``resnet18.tv_in1k``).

    A network that ends in maps returns them. One that ends in tokens, as most transformers, is pooled by timm to a
    vector, a map of one position; its tokens can be had too if it has a class token and nothing learns after them.
    """
    timm = importlib.import_module("timm")
    known = [*timm.list_models(), *timm.list_pretrained()]
    if name not in known:
        raise InvalidInput(f"model.backbone is 'timm:{name}', which timm does not have{suggestion(name, known)}.")
    settings = timm.get_pretrained_cfg(name).to_dict()
    sides = settings["input_size"][1:]
    with torch.random.fork_rng(devices=[]):  # a trial's weights depend only on its seed
        network: Any = _network(name)
        features = _output(network, sides)[1]
        network.forward = network.forward_features
        shape = _output(network, sides)
        if len(shape) == 4:
            shape = _output(_network(name, global_pool=""), sides)
    # Position embeddings are interpolated to the size of the images where the network can do that.
    options = {"dynamic_img_size": True} if hasattr(network, "dynamic_img_size") else {}
    build, of_tokens = partial(_network, name, _one_position, **options), None
    if len(shape) == 4:
        build = partial(_network, name, None if shape[1] == features else _channels_first, global_pool="")
    elif hasattr(network, "cls_token") and all(
        isinstance(getattr(network, part, None), nn.Identity | None) for part in ("fc_norm", "attn_pool")
    ):
        of_tokens = partial(_tokens, name, network.num_prefix_tokens, **options)
    plain = name.partition(".")[0]
    twin = plain.removeprefix("tf_") if plain.startswith("tf_") else f"tf_{plain}"  # other paddings and epsilons
    return Backbone(
        summary=f"{name}, from timm",
        build=build,
        features=features,
        mean=settings["mean"],
        scale=settings["std"],
        imagenet=_published(settings),
        tokens=of_tokens,
        crop=EvaluationCrop(side=sides[0], crop_pct=settings["crop_pct"], interpolation=settings["interpolation"]),
        variants=(f"timm:{twin}",) if twin in known else (),
    )
