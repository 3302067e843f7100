"""Validation classes with official queries and a gallery: the values of an epoch, and of a network without training."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from support.expected_metrics import of_queries
from support.small_search import draw_folder

from trainables.data.sets.manifest import Manifest
from trainables.data.store.spec import StoreSpec
from trainables.data.store.view import StoreView
from trainables.models import EmbeddingModel, ModelConfig
from trainables.models.backbones import backbone
from trainables.models.embedding import embed
from trainables.spec import UntrainedSpec
from trainables.training.config import TrainingConfig
from trainables.training.untrained import validate

CPU = torch.device("cpu")


@pytest.fixture
def images(tmp_path: Path) -> StoreSpec:
    """Six classes of ten images: every third is a query, two cameras alternate after two images."""
    root = draw_folder(tmp_path / "images", classes=6)
    rows = ["path,class,part,camera"]
    for folder in sorted(root.iterdir()):
        for at, path in enumerate(sorted(folder.iterdir())):
            part, camera = "gallery" if at % 3 else "query", at // 2 % 2
            rows.append(f"{path.relative_to(root)},{folder.name},{part},{camera}")
    (root / "x.csv").write_text("\n".join(rows))
    dataset = Manifest(file=root / "x.csv", ignore_same_camera=True)
    return StoreSpec(
        dataset=dataset, class_names=tuple(dataset.classes()), short_side=37, cache=str(tmp_path / "cache")
    )


def expected(embeddings: np.ndarray, view: StoreView, further: int = 0) -> dict[str, float]:
    """Score the queries among the images of ``view``; the last ``further`` embeddings are in the gallery only."""
    queries, count = [at for at, key in enumerate(view.image_keys) if int(Path(key).stem) % 3 == 0], len(view)
    cameras = [int(Path(key).stem) // 2 % 2 for key in view.image_keys]
    seen = list(zip(view.labels_N.tolist(), cameras, strict=True))
    galleries = {
        query: [at for at in range(len(embeddings)) if at >= count or (at not in queries and seen[at] != seen[query])]
        for query in queries
    }
    labels = [*view.labels_N.tolist(), *[-1] * further]
    names = ("recall_at_1", "map_at_r")
    return {name: float(np.mean([*of_queries(embeddings, labels, name, galleries).values()])) for name in names}


def agree(found: Mapping[str, float], values: Mapping[str, float]) -> None:
    assert dict(found) == pytest.approx(values, abs=1e-6)


def test_a_network_without_training_is_validated_on_queries_and_gallery(images: StoreSpec, tmp_path: Path) -> None:
    torch.save(backbone("convnet").build().state_dict(), tmp_path / "weights.pth")
    model = ModelConfig(weights=str(tmp_path / "weights.pth"), embedding_dim=None, freeze="backbone")
    spec = UntrainedSpec(
        model=model,
        training=TrainingConfig(epochs=1, batch_size=20, images_per_class=5, image_size=32, precision="float32"),
        images=images,
        divisions=((images.class_names[:4], images.class_names[4:]),),
        confirming=((images.class_names[:3], images.class_names[3:]), (images.class_names[3:], images.class_names[:3])),
        objective="map_at_r",
        fitted_on=images.class_names[:4],
        metrics=("recall_at_1", "map_at_r"),
        gpu=False,
        gallery_seed=None,
    )
    found = validate(spec)
    network = EmbeddingModel(ModelConfig(weights=model.weights, embedding_dim=None, head="none"))
    view = images.open().subset(images.class_names[4:])
    embeddings = embed(network, view, spec.training.frame, batch_size=64, device=CPU, precision="float32").numpy()
    agree(found.untrained, expected(embeddings, view))
    assert set(found.classes_untrained) == set(found.classes_whitened) == set(images.class_names)
    for half in (images.class_names[:3], images.class_names[3:]):  # classes have equally many queries
        view = images.open().subset(half)
        embeddings = embed(network, view, spec.training.frame, batch_size=64, device=CPU, precision="float32").numpy()
        mean = np.mean([found.classes_untrained[name] for name in half])
        assert mean == pytest.approx(expected(embeddings, view)["map_at_r"], abs=1e-6)
