"""Every training: the objective of each validation class, and the kept model, which is the one in memory."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file
from support.expected_metrics import of_queries
from support.own_trainings import own_spec, trained
from support.small_search import draw_folder
from support.small_training import small_spec, with_training
from torch import Tensor

from trainables.common.errors import InvalidInput
from trainables.data.dataset import Dataset
from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest
from trainables.data.store.store_spec import StoreSpec
from trainables.models.config import Lora, ModelConfig
from trainables.training.cross_validation import training_class
from trainables.training.epoch_training import Untestable, Validation, embedded
from trainables.training.spec import TrialSpec
from trainables.training.train import Training, failure_of, train

METRICS = ("map_at_r", "recall_at_1", "map", "recall_at_2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of images; in the manifest the first 2 + class images are queries, in the last class none.

    Two cameras alternate after two images.
    """
    root = draw_folder(tmp_path_factory.mktemp("images") / "drawn", classes=6, images=8)
    rows = ["path,class,part,camera"]
    for number, folder in enumerate(sorted(root.iterdir())):
        for at, path in enumerate(sorted(folder.iterdir())):
            is_query = at < 2 + number and number < 5
            rows.append(f"{path.relative_to(root)},{folder.name},{'query' if is_query else 'gallery'},{at // 2 % 2}")
    (root / "x.csv").write_text("\n".join(rows))
    return root


def stored(dataset: Dataset, root: Path) -> StoreSpec:
    cache = str(root.parent / "cache")
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=20, cache=cache)


def naive(
    embeddings: np.ndarray,
    keys: list[str],
    labels: list[int],
    queries: set[str] | None,
    cameras: Mapping[str, str],
    metric: str,
) -> dict[int, list[float]]:
    """Return the scores of the queries of each class; ``keys`` are those of the first items."""
    seen = [(label, cameras.get(key, key)) for label, key in zip(labels, keys, strict=False)]
    seen += [(label, "") for label in labels[len(seen) :]]
    ranked = [at for at, key in enumerate(keys) if queries is None or key in queries]
    gallery = [at for at in range(len(labels)) if queries is None or at not in ranked]
    found: dict[int, list[float]] = {}
    galleries = {query: [at for at in gallery if at != query and seen[at] != seen[query]] for query in ranked}
    for query, score in of_queries(embeddings, labels, metric, galleries).items():
        found.setdefault(labels[query], []).append(score)
    return found


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(METRICS), first=st.integers(0, 4),
    protocol=st.sampled_from(["none", "parts", "cameras"]), gallery_seed=st.sampled_from([None, 0, 3]),
)  # fmt: skip
def test_the_value_of_a_class_is_the_mean_of_its_queries(
    root: Path, seed: int, metric: str, protocol: str, gallery_seed: int | None, first: int
) -> None:
    has_parts = protocol != "none"
    dataset: Dataset = Folder(root=str(root))
    if has_parts:
        dataset = Manifest(file=root / "x.csv", ignore_same_camera=protocol == "cameras")
    images = stored(dataset, root)
    store = images.open()
    view = store.subset(store.class_names[first:])
    spec = replace(small_spec(images, root, epochs=1), metrics=(metric,), gallery_seed=gallery_seed if first else None)
    validation = Validation.of(spec, view, store.subset(store.class_names[:first]))
    count = sum(map(len, validation.views))
    embeddings = np.random.default_rng(seed).normal(size=(count, 5))
    labels = [*view.labels_N.tolist(), *[-1] * (count - len(view))]
    queries = {key for key, part in dataset.parts().items() if part == "query"} if has_parts else None
    expected = naive(embeddings, list(view.image_keys), labels, queries, dataset.cameras(), metric)
    if not expected:  # the last class alone has no query
        return
    values = validation.by_class(torch.tensor(embeddings), metric)
    assert values == pytest.approx({view.class_names[label]: np.mean(of) for label, of in expected.items()})
    assert (view.class_names[-1] in values) != has_parts
    weighted = sum(values[view.class_names[label]] * len(of) for label, of in expected.items())
    assert validation.scores(torch.tensor(embeddings))[metric] == pytest.approx(
        weighted / sum(map(len, expected.values()))
    )


def test_a_metric_of_clusters_has_no_values_by_class(root: Path) -> None:
    store = stored(Folder(root=str(root)), root).open()
    view = store.subset(store.class_names)
    assert Validation(("nmi",), Folder(root=str(root)), view).by_class(torch.rand(len(view), 3), "nmi") == {}


# Trainings.


def test_the_best_epochs_so_far_record_their_classes(root: Path, tmp_path: Path) -> None:
    images = stored(Folder(root=str(root)), root)
    plain = small_spec(images, tmp_path, epochs=5)
    spec = replace(
        plain, train_classes=images.class_names[:3], validation_classes=images.class_names[3:],
        training=replace(plain.training, batch_size=15, lr=0.01), by_class=True,
    )  # fmt: skip
    records, best = list(train(spec)), -1.0
    for record in records:
        value = record["metrics"][spec.objective]
        assert ("classes" in record) == (record["checkpoint"] is not None) == (value > best), record["epoch"]
        best = max(best, value)
        if "classes" in record:
            assert list(record["classes"]) == list(spec.validation_classes)
            assert fmean(record["classes"].values()) == pytest.approx(value, abs=1e-12)  # as many images in each
    assert any("classes" not in record for record in records), "every epoch was the best"
    plainly = replace(spec, by_class=False, directory=str(tmp_path / "plain"))
    assert plainly.digest == spec.digest
    others = list(train(plainly))
    assert not any("classes" in record for record in others)
    assert [record["metrics"] for record in others] == [record["metrics"] for record in records]


# The kept model, loaded as the test loads it, is the one in memory, or a training fails in its first epoch.

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
        ("Forgets", OTHER),
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


@pytest.mark.parametrize("name", ["Noisy", "BatchStatistics", "Counting"])
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
