"""The blocks of networks: those that learn beside a frozen rest, and their learning rates."""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from support.refusals import sentences_of
from support.small_training import drawn_images, small_spec
from timm import create_model

from trainables.models import BACKBONES, ModelConfig
from trainables.models.embedding import EmbeddingModel, blocks_of, depths_of
from trainables.models.library_networks import trunk
from trainables.training.train import Training

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
