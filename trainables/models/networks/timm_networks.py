"""timm's networks without their classifier, under timm's parameter names. timm is installed apart."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from trainables.mistakes import Mistakes, suggestion
from trainables.models.backbone import Backbone, Published, published

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
