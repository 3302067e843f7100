"""The objective of each validation class: its values, and the epochs that record them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.expected_metrics import of_queries
from support.small_search import draw_folder
from support.small_training import small_spec

from trainables.data.dataset import Dataset
from trainables.data.sets.folders import Folder
from trainables.data.sets.manifest import Manifest
from trainables.data.store.store_spec import StoreSpec
from trainables.training.epoch_training import Validation
from trainables.training.train import train

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
