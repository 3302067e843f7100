"""LoRA (Hu et al., ICLR 2022): products of two thin matrices are learned beside frozen weights, by peft."""

import copy
import importlib
import re
from typing import Any

from torch import nn

from trainables.errors import InvalidInput

INSTALL = "pip install 'holdout-dml[lora]'"


def add_lora(backbone: nn.Module, rank: int, alpha: float, name: str) -> None:
    """Freeze the backbone called ``name``, and add adapters to its linear layers, in place.

    In a network without linear layers the convolutions have them. The adapters are zero at the start.
    """
    try:
        peft = importlib.import_module("peft")
    except ModuleNotFoundError:
        raise InvalidInput(f"model.lora needs peft, which is not installed: {INSTALL}.") from None
    # PyTorch's attention reads the weights of its layers without calling them.
    attention = [layer for layer in backbone.modules() if isinstance(layer, nn.MultiheadAttention)]
    inside = {part for layer in attention for part in layer.modules()}
    layers = {path: layer for path, layer in backbone.named_modules() if path and layer not in inside}
    kinds = [[path for path, layer in layers.items() if isinstance(layer, kind)] for kind in (nn.Linear, nn.Conv2d)]
    targets = kinds[0] or kinds[1]
    if not targets:
        raise InvalidInput(f"model.lora needs linear layers or convolutions, and {name} has none; set rank to null.")
    exactly = "|".join(map(re.escape, targets))  # a list would match the ends of other names, too
    peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=exactly), backbone)


def merged(network: nn.Module) -> nn.Module:
    """Return a copy of ``network`` whose weights include the adapters of peft; itself if it has none."""
    if not any(hasattr(part, "get_base_layer") for part in network.modules()):
        return network
    network = copy.deepcopy(network)
    layer: Any  # one of peft's
    for parent in [*network.modules()]:
        for name, layer in parent.named_children():
            if hasattr(layer, "get_base_layer"):
                layer.merge()
                setattr(parent, name, layer.get_base_layer())
    return network
