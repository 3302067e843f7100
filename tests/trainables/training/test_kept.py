"""The kept model, loaded as the test loads it, is the one in memory, or a training fails in its first epoch."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.own_trainings import own_spec, trained
from support.small_training import small_spec, with_training
from torch import Tensor

from trainables.common.errors import InvalidInput
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics.evaluation import evaluate
from trainables.models.config import Lora, ModelConfig
from trainables.training.cross_validation import training_class
from trainables.training.epoch_training import Untestable, embedded
from trainables.training.spec import TrialSpec
from trainables.training.train import Training, failure_of, train

CPU = torch.device("cpu")
NETWORK = "support.odd_networks:Attentive"


def image_spec(images: StoreSpec, folder: Path, **model: Any) -> TrialSpec:
    """Return a training of one epoch that validates two classes, and checks its kept model."""
    spec = small_spec(images, folder, epochs=1, checked=True)
    return replace(
        spec, model=ModelConfig(**{"embedding_dim": 8, **model}), loss="proxy_anchor", hyperparameters={},
        train_classes=images.class_names[:4], validation_classes=images.class_names[4:],
    )  # fmt: skip


OTHER = "the saved model is not the one that was trained"
BESIDE = "depends on the items beside it, or differs each time"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Shifted", OTHER),
        ("Averaged", OTHER),
        ("Forgets", OTHER),
        ("Halved", "returns 4 numbers an item, and the one in memory 8"),
        ("Dropping", BESIDE),
        ("Smoothed", BESIDE),
        ("Centred", BESIDE),
        ("DoesNotLoad", "cannot be loaded as the test loads it: KeyError: 'weights'"),
        ("never_the_same", "cannot be loaded as the test loads it: Repeated to epoch 1, the training gives other"),
    ],
)
def test_another_model_is_refused_in_the_first_epoch(name: str, words: str, tmp_path: Path) -> None:
    spec = own_spec(tmp_path, f"support.own_trainings:{name}", checked=True)
    training = training_class(spec)(spec, CPU)
    with pytest.raises(Untestable, match=words) as refused:
        training.run_epoch()
    training.end()
    assert failure_of(refused.value).untestable


def test_the_error_has_both_values(tmp_path: Path) -> None:
    """They are those of an unchecked training, and of its file loaded by hand."""
    spec = own_spec(tmp_path, "support.own_trainings:Shifted", epochs=1)
    (record,) = trained(spec)
    images = replace(spec.images, class_names=spec.validation_classes)
    checkpoint = Path(spec.directory) / str(record["checkpoint"])
    view, embeddings_ND = training_class(spec).tested(spec, checkpoint, images, CPU)
    value = evaluate(embeddings_ND, view.labels_N, ["map_at_r"])["map_at_r"]
    words = rf"map_at_r is {100 * value:.2f}, and was {100 * record['metrics']['map_at_r']:.2f} in memory"
    with pytest.raises(InvalidInput, match=words):
        trained(replace(spec, checked=True, directory=str(tmp_path / "checked")))


@pytest.mark.parametrize("name", ["Scales", "drawn_scales"])
def test_a_training_that_saves_all_passes(name: str, tmp_path: Path) -> None:
    spec = own_spec(tmp_path, f"support.own_trainings:{name}")
    checked = replace(spec, checked=True, directory=str(tmp_path / "checked"))
    assert [record["metrics"] for record in trained(checked)] == [record["metrics"] for record in trained(spec)]


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"freeze_bn": "statistics"},
        {"backbone": NETWORK, "lora": Lora(rank=2)},
        {"lora": Lora(rank=2), "layer_norm": True, "head": "mlp", "head_dropout": 0.5},
    ],
    ids=str,
)
def test_networks_are_kept_as_they_are_in_memory(model: dict[str, Any], images: StoreSpec, tmp_path: Path) -> None:
    spec = with_training(image_spec(images, tmp_path, **model), precision="bfloat16")
    (record,) = train(spec)
    checkpoint = Path(spec.directory) / str(record["checkpoint"])
    assert Training.kept_problem(spec, checkpoint, CPU) is None
    whole = load_file(checkpoint)
    whole["head.0.bias" if "head" not in model else "head.5.bias"] += 0.01
    save_file(whole, checkpoint)
    assert OTHER in str(Training.kept_problem(spec, checkpoint, CPU))


@pytest.mark.parametrize("name", ["Noisy", "Mixing", "BatchStatistics", "Counting"])
def test_a_network_that_is_not_a_function_of_one_image_is_refused(name: str, images: StoreSpec, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=OTHER if name == "Counting" else BESIDE):
        [*train(image_spec(images, tmp_path, backbone=f"support.odd_networks:{name}"))]


def test_the_model_of_a_final_training_is_recognised_by_its_own_items(images: StoreSpec, tmp_path: Path) -> None:
    spec = replace(image_spec(images, tmp_path), train_classes=images.class_names, validation_classes=())
    (record,) = train(spec)
    assert Training.kept_problem(spec, Path(spec.directory) / str(record["checkpoint"]), CPU) is None


def test_the_first_fold_alone_is_checked(images: StoreSpec, tmp_path: Path) -> None:
    spec = replace(image_spec(images, tmp_path), folds=(images.class_names[:2], images.class_names[2:4]))
    assert [spec.of_fold(fold).checked for fold in (1, 2)] == [True, False]


def test_own_networks_embed_in_an_order_without_classes(images: StoreSpec, tmp_path: Path) -> None:
    own, ours = (image_spec(images, tmp_path, backbone=name) for name in (NETWORK, "convnet"))
    view = Training(ours, CPU).train_view
    asked: list[tuple[str, ...]] = []

    def embed(items: Any) -> Tensor:
        asked.append(items.image_keys)
        return torch.tensor([[hash(key)] for key in items.image_keys])

    first, second = embedded(own, view, embed), embedded(ours, view, embed)
    assert torch.equal(first, second)
    assert asked[1] == view.image_keys
    assert sorted(asked[0]) == sorted(view.image_keys)
    labels = [view.labels_N[view.image_keys.index(key)] for key in asked[0]]
    assert sum(one != other for one, other in pairwise(labels)) > len(labels) / 2
