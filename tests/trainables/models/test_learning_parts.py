"""What learns of a network: low-rank adapters (LoRA), and blocks, with their learning rates."""

import sys
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from support.refusals import sentences_of
from support.small_search import small_search
from support.small_training import drawn_images, small_spec
from timm import create_model
from torch import nn

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from trainables.common.errors import InvalidInput
from trainables.models import BACKBONES
from trainables.models.config import Lora, ModelConfig
from trainables.models.embedding import EmbeddingModel, blocks_of, depths_of, learning_adapters, merged
from trainables.models.library_networks import trunk
from trainables.training.train import Training

VIT = ModelConfig(backbone="timm:test_vit", embedding_dim=8, lora=Lora(rank=2, alpha=6.0))
CONVOLUTIONS = ModelConfig(backbone="examples.tiny_network:TinyNetwork", embedding_dim=8, lora=Lora(rank=2))
ATTENTION = ModelConfig(backbone="support.odd_networks:Attentive", embedding_dim=8, lora=Lora(rank=2))
PATCHWORK = ModelConfig(backbone="support.odd_networks:Patchwork", embedding_dim=8, lora=Lora(rank=2))


def moved(config: ModelConfig) -> EmbeddingModel:
    torch.manual_seed(0)
    network = EmbeddingModel(config)
    for name, parameter in network.backbone.named_parameters():
        if parameter.requires_grad:
            assert "lora_" in name
            nn.init.normal_(parameter, std=0.1)
    return network.eval()


@pytest.mark.parametrize("config", [VIT, CONVOLUTIONS, ATTENTION, PATCHWORK])
@torch.no_grad()
def test_the_merged_network_embeds_alike_and_has_the_plain_names(config: ModelConfig) -> None:
    side = 160 if config is VIT else 32
    images, network = torch.rand(2, 3, side, side), moved(config)
    torch.manual_seed(0)
    plain = EmbeddingModel(replace(config, lora=Lora())).eval()
    before = plain(images)
    torch.manual_seed(0)
    torch.testing.assert_close(EmbeddingModel(config).eval()(images), before)
    if config is VIT:
        weight = network.backbone.blocks[0].attn.qkv.parametrizations.weight
        product = weight[0].lora_B @ weight[0].lora_A * 6.0 / 2
        found = merged(network).backbone.blocks[0].attn.qkv.weight
        torch.testing.assert_close(found, weight.original + product)
    plain.load_state_dict(merged(network).state_dict())
    for precision in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", precision, enabled=precision is torch.bfloat16):
            torch.testing.assert_close(plain(images), network(images), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(plain(images), before, atol=1e-2)


def test_adapters_learn_where_weights_are_read_or_used_twice() -> None:
    network = EmbeddingModel(PATCHWORK)
    optimizer = torch.optim.SGD([each for each in network.parameters() if each.requires_grad], lr=0.1)
    for _ in range(2):  # in the first step A has no gradient, since B is zero
        network(torch.rand(2, 3, 32, 32)).square().sum().backward()
        optimizer.step()
    learned = [name for name, each in network.backbone.named_parameters() if name.endswith("lora_B") and each.any()]
    assert {name.split(".parametrizations")[0] for name in learned} == {
        "patches", "rows.0", "read", "twice", "encoder.self_attn", "encoder.self_attn.out_proj", "encoder.linear1",
        "encoder.linear2",
    }  # fmt: skip


def test_only_adapters_and_head_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)  # which LoRA does not need
    network = EmbeddingModel(CONVOLUTIONS)
    assert type(merged(network).backbone.layers[0]) is nn.Conv2d
    norms = [part for part in network.train().modules() if isinstance(part, nn.BatchNorm2d)]
    assert not any(norm.training for norm in norms)
    for name, parameter in network.named_parameters():
        assert parameter.requires_grad == ("lora_" in name or name.startswith("head."))


@pytest.mark.parametrize(
    ("lora", "space"), [({"rank": 3}, {}), ({}, {"model": {"lora.rank": [None, 8]}})], ids=["set", "searched"]
)
def test_adapters_are_counted_before_the_start(image_folder: Path, tmp_path: Path, lora: Any, space: Any) -> None:
    model = {"backbone": "support.odd_networks:Patchwork", "embedding_dim": 8, "lora": lora}
    plan = make_plan(parse_config(small_search(image_folder, model=model, space=space)), tmp_path)
    assert any("adapters at 8 of 15 weights" in notice for notice in plan.notices)
    model["backbone"] = "support.odd_networks:Detached"
    with pytest.raises(InvalidInput, match=r"set model\.lora\.rank to null"):
        make_plan(parse_config(small_search(image_folder, model=model, space=space)), tmp_path)


def test_adapters_are_counted_and_what_has_none_is_named() -> None:
    layers = "weights of linear, attention and convolutional layers"
    assert learning_adapters(CONVOLUTIONS, 32) == f"adapters at 2 of 2 {layers}"
    assert learning_adapters(PATCHWORK, 32) == (
        f"adapters at 8 of 15 {layers}; not at grouped.weight (grouped), tied.*.weight (shared by layers), "
        "rows.1.weight (grouped), normalised.weight (computed or quantised), detached.weight (no gradient), "
        "unused.weight (no gradient)"
    )


def test_a_network_where_nothing_learns_is_refused() -> None:
    for name in ("WithoutLayers", "Detached"):
        config = ModelConfig(backbone=f"support.odd_networks:{name}", lora=Lora(rank=4))
        with pytest.raises(InvalidInput, match=rf"^LoRA: adapters at 0 of .*:{name} would .*rank to null"):
            learning_adapters(config, 32)
    settings: tuple[dict[str, Any], ...] = ({"freeze": ("blocks.*",)}, {"backbone": "features:8"})
    for setting in settings:
        (said,) = sentences_of(ModelConfig, **{"backbone": "timm:test_vit", "lora": Lora(rank=4), **setting})
        assert "needs a backbone that learns" in said


# Blocks, of which the last learn beside a frozen rest, and their learning rates.


# Numbers of blocks as their papers and libraries count them: bottlenecks, layers of a transformer, MBConv, and so on.
COUNTS = {
    "resnet18": 8, "resnet50": 16, "timm:vit_tiny_patch16_224": 12, "torchvision:vit_b_16": 12,
    "timm:convnext_atto": 12, "torchvision:convnext_tiny": 18, "timm:efficientnet_lite0": 16,
    "torchvision:efficientnet_b0": 16, "timm:swin_tiny_patch4_window7_224": 12, "torchvision:densenet121": 58 + 3,
    "timm:mobilenetv3_small_100": 12, "convnet": 0,
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_blocks_are_those_of_the_paper(name: str) -> None:
    library, _, of_library = name.partition(":")
    build = {"timm": partial(create_model, num_classes=0), "torchvision": trunk}.get(library)
    with torch.device("meta"):  # random weights take up to seconds
        network = BACKBONES[name].build() if build is None else build(of_library)
    blocks, (depths, count) = blocks_of(network), depths_of(network)
    assert len(blocks) == count == COUNTS[name]
    assert depths == sorted(depths), "parameters come in the order of the blocks"
    by_block = [{*map(id, block.parameters())} for block in blocks]
    assert all(not first & second for first, second in pairwise(by_block))
    places = {id(own): depth for own, depth in zip(network.parameters(), depths, strict=True)}
    for depth, own in enumerate(by_block, 1):
        assert {places[each] for each in own} == {depth}


def test_all_but_the_last_blocks_are_frozen() -> None:
    model = EmbeddingModel(ModelConfig(backbone="resnet18", freeze="all_but_3")).train()
    for name, own in model.backbone.named_parameters():
        assert own.requires_grad == name.startswith(("layer3.1", "layer4")), name
    norms = {name: part.training for name, part in model.backbone.named_modules() if name.endswith(("bn1", "bn2"))}
    assert not norms["bn1"], "statistics of what is frozen stay"
    assert norms["layer4.1.bn2"]
    (sentence,) = sentences_of(EmbeddingModel, ModelConfig(backbone="resnet18", freeze="all_but_8"))
    assert sentence == (
        "model.freeze is all_but_8, and resnet18 has 8 blocks; name fewer, or give a list of parameter names, or null."
    )


def test_rates_decay_by_block(tmp_path: Path) -> None:
    """Every learning parameter is in one group, whose rate is lr times the decay to the power of the blocks above."""
    spec = small_spec(drawn_images(tmp_path), tmp_path, epochs=1)
    rates = replace(spec.training, lr=0.1, head_lr=0.3, layer_decay=0.5)
    training = Training(replace(spec, model=ModelConfig(backbone="resnet18"), training=rates), torch.device("cpu"))
    rate_of = {id(own): group["lr"] for group in training.optimizer.param_groups for own in group["params"]}
    above = {"conv1": 9, "bn1": 9, "layer1.0": 8, "layer2.1": 5, "layer3.0": 4, "layer4.0": 2, "layer4.1": 1}
    for name, own in training.model.backbone.named_parameters():
        for part, blocks in above.items():
            if name.startswith(f"{part}."):
                assert rate_of[id(own)] == pytest.approx(0.1 * 0.5**blocks), name
    assert {rate_of[id(own)] for own in training.model.head.parameters()} == {0.3}
    assert sum(len(group["params"]) for group in training.optimizer.param_groups) == len(rate_of)
