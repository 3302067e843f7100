"""LoRA: what learns, what the merged network computes, and a training from its first step to its export."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.refusals import sentences_of
from support.small_search import small_search
from support.small_training import drawn_images, small_spec
from torch import nn

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from spaces.search_space import search_space
from spaces.space import Params
from trainables.common.errors import InvalidInput
from trainables.inference.model_files import read_tensors
from trainables.metrics.evaluation import evaluate
from trainables.models.config import Lora, ModelConfig
from trainables.models.embedding import EmbeddingModel, learning_adapters, merged
from trainables.training.train import Training, train
from trainables.training.training_config import TrainingConfig

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


def test_a_training_is_resumed_and_tested_with_merged_weights(tmp_path: Path) -> None:
    images = drawn_images(tmp_path)
    specs = [
        replace(
            small_spec(images, tmp_path / name, epochs=3),
            model=PATCHWORK, train_classes=images.class_names[:4], validation_classes=images.class_names[4:],
        )
        for name in ("whole", "killed")
    ]  # fmt: skip
    whole = list(train(specs[0]))
    for _ in zip(range(2), train(specs[1]), strict=False):
        pass  # ended in the middle
    again = list(train(specs[1]))
    assert [record["metrics"] for record in again] == [record["metrics"] for record in whole]
    best = max((record for record in whole if record["checkpoint"]), key=lambda record: record["epoch"])
    checkpoint = Path(specs[0].directory) / best["checkpoint"]
    assert not any("lora" in name for name in read_tensors(checkpoint)[0])
    held_out = replace(images, class_names=images.class_names[4:])
    view, embeddings_ND = Training.tested(specs[0], checkpoint, held_out, torch.device("cpu"))
    assert evaluate(embeddings_ND, view.labels_N, ["map_at_r"])["map_at_r"] == best["metrics"]["map_at_r"]


def test_rank_and_alpha_are_searched_by_the_names_of_their_keys() -> None:
    wishes = {"model": {"lora.rank": [None, 2, 4], "lora.alpha": {"low": 4, "high": 32, "log": True}}}
    space = search_space("mpa", TrainingConfig(), {}, wishes, model=VIT)
    assert space.default["model.lora.rank"] == 2
    assert space.default["model.lora.alpha"] == 6.0
    changed = VIT.changed(Params({**space.default, "model.lora.rank": 4}).model)
    assert changed == replace(VIT, lora=Lora(rank=4, alpha=6.0))


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
