"""The objective of each validation class: its values, and the epochs that record them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.expected_metrics import of_queries
from support.own_trainings import own_spec, trained
from support.small_search import draw_folder
from support.small_training import small_spec

from trainables.data.dataset import Dataset
from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest
from trainables.data.store.spec import StoreSpec
from trainables.data.store.view import StoreView, training_half
from trainables.models import EmbeddingModel, ModelConfig
from trainables.models.backbones import backbone
from trainables.models.embedding import embed
from trainables.spec import EpochRecord, TrialSpec, UntrainedSpec
from trainables.training.config import TrainingConfig
from trainables.training.epoch_training import Validation
from trainables.training.train import train
from trainables.training.untrained import validate

METRICS = ("map_at_r", "recall_at_1", "map", "recall_at_2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six classes of images; in the manifest the first 2 + class images are queries, in the last class none."""
    root = draw_folder(tmp_path_factory.mktemp("images") / "drawn", classes=6, images=8)
    rows = ["path,class,part"]
    for number, folder in enumerate(sorted(root.iterdir())):
        for at, path in enumerate(sorted(folder.iterdir())):
            is_query = at < 2 + number and number < 5
            rows.append(f"{path.relative_to(root)},{folder.name},{'query' if is_query else 'gallery'}")
    (root / "x.csv").write_text("\n".join(rows))
    return root


def stored(dataset: Dataset, root: Path) -> StoreSpec:
    cache = str(root.parent / "cache")
    return StoreSpec(dataset=dataset, class_names=tuple(dataset.classes()), short_side=20, cache=cache)


def naive(
    embeddings: np.ndarray, keys: list[str], labels: list[int], queries: set[str] | None, metric: str
) -> dict[int, list[float]]:
    """Return the scores of the queries of each class; ``keys`` are those of the first items."""
    ranked = [at for at, key in enumerate(keys) if queries is None or key in queries]
    gallery = [at for at in range(len(labels)) if queries is None or at not in ranked]
    found: dict[int, list[float]] = {}
    galleries = {query: [at for at in gallery if at != query] for query in ranked}
    for query, score in of_queries(embeddings, labels, metric, galleries).items():
        found.setdefault(labels[query], []).append(score)
    return found


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(METRICS), has_parts=st.booleans(),
    gallery_seed=st.sampled_from([None, 0, 3]), first=st.integers(0, 4),
)  # fmt: skip
def test_the_value_of_a_class_is_the_mean_of_its_queries(
    root: Path, seed: int, metric: str, has_parts: bool, gallery_seed: int | None, first: int
) -> None:
    dataset: Dataset = Manifest(file=root / "x.csv") if has_parts else Folder(root=str(root))
    store = stored(dataset, root).open()
    view = store.subset(store.class_names[first:])
    further: StoreView | None = None
    if gallery_seed is not None and first > 0:
        further = training_half(store.subset(store.class_names[:first]), gallery_seed)
    validation = Validation((metric,), dataset, view, further)
    count = sum(map(len, validation.views))
    embeddings = np.random.default_rng(seed).normal(size=(count, 5))
    labels = [*view.labels_N.tolist(), *[-1] * (count - len(view))]
    queries = {key for key, part in dataset.parts().items() if part == "query"} if has_parts else None
    expected = naive(embeddings, list(view.image_keys), labels, queries, metric)
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


def check(records: list[EpochRecord], spec: TrialSpec, sizes: dict[str, int]) -> None:
    """Check that the epochs that are the best so far, and no others, have the values of all classes."""
    best = -1.0
    for record in records:
        value = record["metrics"][spec.objective]
        assert ("classes" in record) == (value > best), record["epoch"]
        assert (record["checkpoint"] is not None) == (value > best)
        best = max(best, value)
        if "classes" in record:
            assert list(record["classes"]) == list(spec.validation_classes)
            weighted = sum(record["classes"][name] * sizes[name] for name in spec.validation_classes)
            assert weighted / sum(sizes[name] for name in spec.validation_classes) == pytest.approx(value, abs=1e-12)


def sizes_of(images: StoreSpec) -> dict[str, int]:
    return {name: len(keys) for name, keys in images.dataset.classes().items()}


def test_the_best_epochs_so_far_record_their_classes(root: Path, tmp_path: Path) -> None:
    images = stored(Folder(root=str(root)), root)
    plain = small_spec(images, tmp_path, epochs=5)
    spec = replace(
        plain, train_classes=images.class_names[:3], validation_classes=images.class_names[3:],
        training=replace(plain.training, batch_size=15, lr=0.01), by_class=True,
    )  # fmt: skip
    records = list(train(spec))
    assert any("classes" not in record for record in records), "every epoch was the best"
    check(records, spec, sizes_of(images))
    plainly = replace(spec, by_class=False, directory=str(tmp_path / "plain"))
    assert plainly.digest == spec.digest
    others = list(train(plainly))
    assert not any("classes" in record for record in others)
    assert [record["metrics"] for record in others] == [record["metrics"] for record in records]


def test_an_own_training_records_its_classes(tmp_path: Path) -> None:
    spec = replace(own_spec(tmp_path, "support.own_trainings:Scales", epochs=4, validates=(1, 3)), by_class=True)
    check(trained(spec), spec, sizes_of(spec.images))


# A network without training, on queries and a gallery.


def test_a_network_without_training_is_validated_on_queries_and_gallery(tmp_path: Path) -> None:
    """Every third image of a class is a query, and two cameras alternate after two images."""
    root = draw_folder(tmp_path / "images", classes=6)
    rows = ["path,class,part,camera"]
    for folder in sorted(root.iterdir()):
        for at, path in enumerate(sorted(folder.iterdir())):
            part, camera = "gallery" if at % 3 else "query", at // 2 % 2
            rows.append(f"{path.relative_to(root)},{folder.name},{part},{camera}")
    (root / "x.csv").write_text("\n".join(rows))
    images = stored(Manifest(file=root / "x.csv", ignore_same_camera=True), root)
    names = images.class_names
    torch.save(backbone("convnet").build().state_dict(), tmp_path / "weights.pth")
    model = ModelConfig(weights=str(tmp_path / "weights.pth"), embedding_dim=None, freeze="backbone")
    training = TrainingConfig(epochs=1, batch_size=20, images_per_class=5, image_size=16, precision="float32")
    found = validate(
        UntrainedSpec(
            model=model, training=training, images=images, divisions=((names[:4], names[4:]),),
            confirming=((names[:3], names[3:]), (names[3:], names[:3])), objective="map_at_r", fitted_on=names[:4],
            metrics=("recall_at_1", "map_at_r"), gpu=False, gallery_seed=None,
        )
    )  # fmt: skip
    network = EmbeddingModel(replace(model, freeze=None, head="none"))

    def expected(view: StoreView, metric: str) -> float:
        embeddings = embed(
            network, view, training.frame, batch_size=64, device=torch.device("cpu"), precision="float32"
        ).numpy()
        queries = [at for at, key in enumerate(view.image_keys) if int(Path(key).stem) % 3 == 0]
        cameras = [int(Path(key).stem) // 2 % 2 for key in view.image_keys]
        seen = list(zip(view.labels_N.tolist(), cameras, strict=True))
        galleries = {
            query: [at for at in range(len(seen)) if at not in queries and seen[at] != seen[query]] for query in queries
        }
        return float(np.mean([*of_queries(embeddings, view.labels_N.tolist(), metric, galleries).values()]))

    view = images.open().subset(names[4:])
    values = {metric: expected(view, metric) for metric in ("recall_at_1", "map_at_r")}
    assert dict(found.untrained) == pytest.approx(values, abs=1e-6)
    assert set(found.classes_untrained) == set(found.classes_whitened) == set(names)
    for half in (names[:3], names[3:]):  # classes have equally many queries
        mean = np.mean([found.classes_untrained[name] for name in half])
        assert mean == pytest.approx(expected(images.open().subset(half), "map_at_r"), abs=1e-6)
