"""Stages of real networks hold every parameter once, from the stem to the top."""

from typing import Any

import pytest
import torch
from torch import nn

from trainables.models.backbones import backbone
from trainables.models.stages import stages

PATCHES = "encoder.layers.encoder_layer_{}"
NETWORKS: dict[str, list[str]] = {
    "convnet": ["blocks.0", "blocks.3", "blocks.7", "blocks.11"],
    "bninception": ["conv1_7x7_s2", "inception_3a_1x1", "inception_4a_1x1", "inception_5a_1x1"],
    "resnet18": ["conv1", "layer1", "layer2", "layer3", "layer4"],
    "googlenet": ["conv1", "inception3a", "inception4a", "inception5a"],
    "torchvision:vit_b_32": ["class_token", *map(PATCHES.format, range(12))],
    "torchvision:shufflenet_v2_x0_5": ["conv1", "stage2", "stage3", "stage4"],
    "torchvision:convnext_tiny": [f"features.{number}" for number in range(8)],
    "torchvision:vgg11_bn": [f"features.{number}" for number in (0, 4, 8, 11, 15, 18, 22, 25)],
}


@pytest.mark.parametrize(("name", "expected"), NETWORKS.items(), ids=NETWORKS)
def test_networks_have_the_stages_of_their_papers(name: str, expected: list[str]) -> None:
    with torch.device("meta"):
        network = backbone(name).build()
    found = stages(network)
    assert [stage.name for stage in found] == expected
    held = [id(parameter) for stage in found for parameter in stage.parameters]
    assert sorted(held) == sorted(id(parameter) for parameter in network.parameters())


def where(network: nn.Module) -> dict[str, int]:
    """Return the number of the stage of each parameter."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {names[id(p)]: number for number, stage in enumerate(stages(network)) for p in stage.parameters}


def test_what_surrounds_a_series_belongs_to_its_ends() -> None:
    with torch.device("meta"):
        vit, dense = (backbone(name).build() for name in ("torchvision:vit_b_32", "torchvision:densenet121"))
    of_vit = where(vit)
    assert of_vit["conv_proj.weight"] == of_vit["encoder.pos_embedding"] == of_vit["class_token"] == 0
    assert of_vit["encoder.ln.weight"] == of_vit["encoder.layers.encoder_layer_11.mlp.0.weight"] == 12
    of_dense = where(dense)
    assert of_dense["features.norm0.weight"] == 0
    assert of_dense["features.transition2.conv.weight"] == 2
    assert of_dense["features.norm5.weight"] == 4


def layers(**parts: Any) -> nn.Module:
    """Return a module with named parts, as timm names them."""
    module = nn.Module()
    for name, part in parts.items():
        if isinstance(part, nn.Parameter):
            module.register_parameter(name, part)
        else:
            module.add_module(name, part)
    return module


def linear() -> nn.Linear:
    return nn.Linear(8, 8)


def test_stages_of_timm_s_names() -> None:
    """The largest part holds the series, although the parts around it have numbers too."""
    vit = layers(
        cls_token=nn.Parameter(torch.zeros(1, 1, 8)), patch_embed=layers(proj=linear()),
        blocks=nn.Sequential(*(layers(norm1=nn.LayerNorm(8), attn=linear(), mlp=linear()) for _ in range(3))),
        norm=nn.LayerNorm(8),
    )  # fmt: skip
    assert [stage.name for stage in stages(vit)] == ["cls_token", "blocks.0", "blocks.1", "blocks.2"]
    efficientnet = layers(
        conv_stem=linear(), bn1=nn.LayerNorm(8),
        blocks=nn.Sequential(*(nn.Sequential(linear(), linear()) for _ in "ab")),
        conv_head=linear(), bn2=nn.LayerNorm(8),
    )  # fmt: skip
    assert [stage.name for stage in stages(efficientnet)] == ["conv_stem", "blocks.0", "blocks.1"]
    assert where(efficientnet)["conv_head.weight"] == 2


def test_a_network_without_a_series_has_its_parts() -> None:
    network = layers(low=linear(), norm=nn.LayerNorm(8), middle=linear(), top=linear())
    assert [stage.name for stage in stages(network)] == ["low", "middle", "top"]
    assert where(network)["norm.weight"] == 0
    assert stages(nn.Identity()) == []
    assert [stage.name for stage in stages(linear())] == ["weight"]
