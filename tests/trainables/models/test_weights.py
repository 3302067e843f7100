"""Initial weights from files of other programs, and what is said about them."""

import pickle
import random
import re
import statistics
from argparse import Namespace
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support.expected_metrics import of_queries
from support.refusals import sentences_of
from support.small_search import small_search
from torch import Tensor, nn
from torchvision.models import ResNet, VisionTransformer
from torchvision.models.resnet import BasicBlock
from torchvision.transforms import v2

from search.config.initial_file import Pretrained, dataset_facts
from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from trainables.common.errors import InvalidInput
from trainables.models import BACKBONES, ModelConfig
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel
from trainables.models.weights import LoadedWeights, load_weights

Tensors = dict[str, Tensor]


@pytest.fixture(scope="module")
def whole() -> Tensors:
    """Random weights of a network with a classifier, and statistics that differ from those of a new network."""
    torch.manual_seed(7)
    network = BACKBONES["convnet"].build()
    network.fc = nn.Linear(128, 10)
    state = network.state_dict()
    for name, tensor in state.items():
        if "running" in name:
            tensor.uniform_(0.5, 1.5)
    return state


def under(prefix: str, state: Tensors) -> Tensors:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def other(state: Tensors) -> Tensors:
    return {name: tensor + 1 for name, tensor in state.items()}


def loaded(network: nn.Module, content: object, folder: Path) -> LoadedWeights:
    torch.save(content, folder / "weights.pth")
    return load_weights(network, folder / "weights.pth")


def is_loaded(network: nn.Module, state: Tensors) -> bool:
    own = network.state_dict()
    return all(torch.equal(own[name], state[name].float()) for name in own if own[name].is_floating_point())


OF = "22 tensors of weights.pth; left out"
# The content of a file with the weights of a network, and the sentence after "loaded 20 of … tensors of FILE".
LAYOUTS: dict[str, tuple[Callable[[Tensors], Any], str]] = {
    "as torchvision and timm save it": (lambda state: state, f"{OF} fc.weight, fc.bias"),
    "BN-Inception, converted from Caffe": (
        lambda state: {name: tensor[None] if tensor.ndim == 1 else tensor for name, tensor in state.items()},
        f"{OF} fc.weight, fc.bias",
    ),
    "a checkpoint": (
        lambda state: {
            "epoch": 7,
            "state_dict": state,
            "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1.0}]},
            "args": Namespace(lr=1.0, arch="resnet18"),
        },
        f"{OF} state_dict.fc.weight, state_dict.fc.bias; prefix 'state_dict.' removed",
    ),
    "DINO": (
        lambda state: {
            "student": under("module.backbone.", other(state)),
            "teacher": {**under("backbone.", state), "head.mlp.0.weight": torch.zeros(4, 512)},
        },
        "and 20 more; prefix 'teacher.backbone.' removed",
    ),
    "MoCo": (
        lambda state: {"state_dict": {**under("module.encoder_q.", state), **under("module.encoder_k.", other(state))}},
        "and 19 more; prefix 'state_dict.module.encoder_q.' removed",
    ),
}


@pytest.mark.parametrize(("layout", "sentence"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_same_features_from_every_layout(
    layout: Callable[[Tensors], Any], sentence: str, whole: Tensors, tmp_path: Path
) -> None:
    torch.save(layout(whole), tmp_path / "weights.pth")
    model = EmbeddingModel(ModelConfig(weights=str(tmp_path / "weights.pth"))).eval()
    assert str(model.loaded).startswith("loaded 20 of ")
    assert str(model.loaded).endswith(sentence)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = EmbeddingModel(ModelConfig()).eval()
    plain.backbone.load_state_dict(whole, strict=False)
    with torch.no_grad():
        assert torch.equal(model.features(images), plain.features(images))


def test_damaged_safetensors(tmp_path: Path) -> None:
    network, path = BACKBONES["convnet"].build(), tmp_path / "weights.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(InvalidInput, match=r"The weights in .* cannot be read: it is damaged \(.*\); copy it again\.$"):
        load_weights(network, path)


def test_the_content_and_not_the_suffix_says_how_weights_are_read(tmp_path: Path) -> None:
    state = BACKBONES["convnet"].build().state_dict()
    for save, suffix, number in ((torch.save, "safetensors", torch.bfloat16), (save_file, "pth", torch.float64)):
        expected = {name: tensor.to(number).contiguous() for name, tensor in state.items()}
        save(expected, tmp_path / f"weights.{suffix}")
        network = BACKBONES["convnet"].build()
        load_weights(network, tmp_path / f"weights.{suffix}")
        assert is_loaded(network, expected)


UNUSABLE: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "NaN": (lambda tensor: tensor * torch.nan, r"^1 tensor in .* with NaN or infinity \(blocks\.0\.weight\); give"),
    "infinite": (lambda tensor: tensor / 0, r"^1 tensor in .* with NaN or infinity \(blocks\.0\.weight\); give"),
    "sparse": (torch.Tensor.to_sparse, r"1 missing \(blocks\.0\.weight"),
    "meta": (lambda tensor: tensor.to("meta"), r"1 missing \(blocks\.0\.weight"),
}


@pytest.mark.parametrize(("form", "words"), UNUSABLE.values(), ids=UNUSABLE)
def test_tensors_without_usable_numbers_may_only_be_left_out(
    form: Callable[[Tensor], Tensor], words: str, tmp_path: Path
) -> None:
    network = BACKBONES["convnet"].build()
    state = network.state_dict()
    loaded(network, {**state, "classifier": form(torch.ones(3, 3))}, tmp_path)
    with pytest.raises(InvalidInput, match=words):
        loaded(network, {**state, "blocks.0.weight": form(state["blocks.0.weight"])}, tmp_path)


def renamed(state: Tensors) -> Tensors:
    """Return tensors under names that say nothing, with a classifier at the end."""
    return {f"layer_{number}.{name.rpartition('.')[2]}": state[name] for number, name in enumerate(state)}


def test_equal_shapes_in_order_are_matched(whole: Tensors, tmp_path: Path) -> None:
    network, at = BACKBONES["convnet"].build(), len(whole) - 2
    assert str(loaded(network, renamed(whole), tmp_path)) == (
        f"loaded 20 of {OF} layer_{at}.weight, layer_{at + 1}.bias; matched by order, since the names differ "
        "(layer_0.weight is blocks.0.weight)"
    )
    assert is_loaded(network, whole)


def learned(state: Tensors, lost: int = 0) -> Tensors:
    """Return the tensors of a network that learn, without the first ones and the classifier."""
    return dict([(name, tensor) for name, tensor in state.items() if "num_batches" not in name][lost:20])


NONE = "None of the 20 tensors that the backbone needs"
REFUSED: dict[str, tuple[Callable[[Tensors], Tensors], str]] = {
    "shuffled": (lambda state: dict(random.Random(0).sample([*renamed(state).items()], len(state))), NONE),
    "by name": (lambda state: dict(sorted(renamed(state).items())), NONE),
    **{
        f"{lost} lost": (partial(learned, lost=lost), rf"{20 - lost} of the 20 .* all must be: {lost} missing \(")
        for lost in (1, 10, 19)
    },
    "one of equal name": (
        lambda state: {
            name if at == 0 else f"encoder.{at}": tensor if at == 0 else torch.zeros(1, *tensor.shape)
            for at, (name, tensor) in enumerate(learned(state).items())
        },
        r"1 of the 20 tensors .* is in .*, which has encoder\.1, encoder\.2, and",
    ),
}


@pytest.mark.parametrize(("change", "words"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_match_is_refused_and_changes_nothing(
    change: Callable[[Tensors], Tensors], words: str, whole: Tensors, tmp_path: Path
) -> None:
    network = BACKBONES["convnet"].build()
    before = deepcopy(network.state_dict())
    with pytest.raises(InvalidInput, match=words):
        loaded(network, change(whole), tmp_path)
    assert is_loaded(network, before)


def torchvisions_transformer() -> VisionTransformer:
    network = VisionTransformer(32, 16, 2, 2, 8, 16)
    network.heads = nn.Identity()
    return network


def test_a_vision_transformer_of_torchvision_is_one_of_timm_and_dino(tmp_path: Path) -> None:
    from timm.models.vision_transformer import VisionTransformer as Timms

    theirs = torchvisions_transformer().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.1)
    ours = Timms(img_size=32, patch_size=16, embed_dim=8, depth=2, num_heads=2, mlp_ratio=2, num_classes=0).eval()
    assert not loaded(ours, theirs.state_dict(), tmp_path).left_out
    back = torchvisions_transformer().eval()
    found = loaded(back, {"teacher": under("backbone.", ours.state_dict())}, tmp_path)
    assert (found.loaded, found.left_out, found.prefix) == (30, (), "teacher.backbone.")
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images))
        assert torch.equal(back(images), theirs(images))


def test_two_layers_of_a_network_are_not_taken_for_one(tmp_path: Path) -> None:
    """Another library's network may have a layer mlp.0 where this one has mlp.fc1; this network has both."""

    def network() -> nn.Module:
        return nn.ModuleDict({"mlp": nn.ModuleDict({"fc1": nn.Linear(2, 2), "0": nn.Linear(2, 2)})})

    theirs, ours = network(), network()
    assert loaded(ours, under("backbone.", theirs.state_dict()), tmp_path).loaded == 4
    assert is_loaded(ours, theirs.state_dict())


def test_weights_of_another_architecture(weights: Path) -> None:
    with torch.device("meta"):
        other = BACKBONES["resnet50"].build()
    (sentence,) = sentences_of(load_weights, other, weights)
    assert "77 of the 265 tensors that the backbone needs are in" in sentence
    assert "and all must be: 165 missing (layer1.0.conv3.weight [256, 64, 1, 1], " in sentence
    assert "23 of another shape (layer1.0.conv1.weight (needs [64, 64, 1, 1], found [64, 64, 3, 3])" in sentence
    (sentence,) = sentences_of(load_weights, BACKBONES["convnet"].build(), weights)
    assert re.match(r"None of the 20 tensors .*\(blocks.0.weight, .*, which has conv1.weight, .*100 more", sentence)


def test_weights_of_a_deeper_network_are_refused(tmp_path: Path) -> None:
    from timm.models.vision_transformer import VisionTransformer as Timms

    def transformer(depth: int, registers: int = 0) -> nn.Module:
        return Timms(img_size=32, patch_size=16, embed_dim=8, depth=depth, num_heads=2, reg_tokens=registers)

    convnet = BACKBONES["convnet"].build()
    deeper = {**convnet.state_dict(), "blocks.15.weight": torch.zeros(9, 128, 3, 3)}
    small = ResNet(BasicBlock, [1, 1, 1, 1])
    squeezed = {**small.state_dict(), "layer1.0.se.fc1.weight": torch.zeros(4, 64, 1, 1)}
    cases: tuple[tuple[nn.Module, Tensors, str], ...] = (
        (small, ResNet(BasicBlock, [2, 1, 1, 1]).state_dict(), r"6 tensors more .*\(layer1\.1\.conv1\.weight, "),
        (transformer(2), transformer(3).state_dict(), r"12 tensors more .*\(blocks\.2\.norm1\.weight, "),
        (torchvisions_transformer(), Timms(32, 16, embed_dim=8, depth=3, num_heads=2, mlp_ratio=2).state_dict(), "12"),
        (transformer(2), {**transformer(2).state_dict(), "register_tokens": torch.zeros(1, 4, 8)}, "register_tokens"),
        (small, squeezed, r"1 tensor more .*\(layer1\.0\.se\.fc1\.weight\)"),
        (convnet, {**deeper, "fc.weight": torch.zeros(9, 9)}, r"1 tensor more .*\(blocks\.15\.weight\)"),
    )
    for network, state, words in cases:
        before = deepcopy(network.state_dict())
        with pytest.raises(InvalidInput, match=f"weights.pth has .*{words}.* deeper or other variant"):
            loaded(network, state, tmp_path)
        assert is_loaded(network, before)


def test_what_is_no_layer_of_the_backbone_is_left_out(weights: Path, tmp_path: Path) -> None:
    names = ("fc.weight", "head.mlp.0.weight", "queue", "neck.0.weight", "layer5.0.weight", "layer1.0.attn_mask")
    content = {**torch.load(weights), **{name: torch.zeros(9, 9) for name in names}}
    left_out = loaded(BACKBONES["resnet18"].build(), under("module.encoder_q.", content), tmp_path).left_out
    assert {name.removeprefix("module.encoder_q.") for name in left_out} == {*names, "fc.bias"}
    own = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 1), nn.Flatten()))
    content = {**own.state_dict(), "0.2.weight": torch.zeros(9, 3), "0.2.bias": torch.zeros(9)}
    assert loaded(own, content, tmp_path).left_out == ("0.2.weight", "0.2.bias")


def recursive(path: Path) -> None:
    content: dict[str, Any] = {}
    content["model"] = content
    torch.save(content, path)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a list": (lambda path: torch.save([1, 2], path), "does not hold named tensors. Save a network's state_dict()"),
    "itself": (recursive, "does not hold named tensors"),
    "a network": (lambda path: torch.save(nn.Linear(2, 2), path), "it holds a torch.nn.modules.linear.Linear, which"),
    "a pickle": (lambda path: path.write_bytes(pickle.dumps(3)), "it is a pickle of something else than tensors"),
    "an archive": (lambda path: path.write_bytes(b"PK\5\6" + bytes(18)), "torch.save did not write this archive; unpa"),
    "TorchScript": (
        lambda path: torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), path), "it is a TorchScript"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize(("write", "words"), FILES.values(), ids=FILES)
def test_files_that_are_not_weights(write: Callable[[Path], object], words: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.csv"
    write(path)
    (sentence,) = sentences_of(EmbeddingModel, ModelConfig(weights=str(path)))
    assert words in sentence
    assert str(path) in sentence
    assert "weights_only" not in sentence
    assert "\n" not in sentence


def test_weights_matched_by_order_are_scored_in_the_variants_too(tmp_path: Path, image_folder: Path) -> None:
    names = ("timm:efficientnet_lite0", "timm:tf_efficientnet_lite0")
    torch.manual_seed(7)
    network = backbone(names[0]).build().train()
    for _ in range(3):  # statistics of a batch, so that features of images differ
        network(torch.randn(16, 3, 20, 20))
    state = network.state_dict()
    renamed = {f"n{at}.{name.rpartition('.')[2]}": value for at, (name, value) in enumerate(state.items())}
    torch.save(renamed, tmp_path / "w.pth")
    model = {"backbone": names[0], "weights": str(tmp_path / "w.pth")}
    training = {"image_size": 20, "resize_size": 20, "batch_size": 8, "images_per_class": 2}
    plan = make_plan(parse_config(small_search(image_folder, model=model, training=training)), tmp_path)
    of_class, scores = plan.images.dataset.classes(), {}
    for name in names:
        config = ModelConfig(backbone=name, weights=str(tmp_path / "w.pth"), head="none", embedding_dim=None)
        network = EmbeddingModel(config).eval()
        to_pixels = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
        keys = [(label, key) for label, of in enumerate(plan.split.train) for key in of_class[of][:8]]
        pixels = torch.stack([to_pixels(plan.images.dataset.read(key).copy()) for _, key in keys])
        with torch.inference_mode():
            features = network(pixels).double().numpy()
        scores[name] = 100 * statistics.fmean(of_queries(features, [label for label, _ in keys], "map_at_r").values())
    (*_, notice) = plan.notices
    assert "matched by order" in notice
    for name in names:
        assert f"{scores[name]:.1f} in {name}" in notice
    better = max(names, key=scores.__getitem__)
    assert notice.endswith("classes." if better == names[0] else f"classes; set model.backbone to {better}.")
    found = Pretrained(backbone=names[0], weights=str(tmp_path / "w.pth"))
    chosen, sentence = found.fitted(20, plan.images.dataset, dataset_facts(plan.images.dataset))
    assert chosen.backbone == better
    assert all(f"{name}" in sentence for name in names)
