"""User-defined parts train in any process that can import them, and keep the contract."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support import own_parts
from support.refusals import sentences_of
from support.small_training import small_spec

from spaces.search_space import search_space
from trainables.common.errors import InvalidInput
from trainables.common.part_tables import load_part, plain_name
from trainables.data import DATASETS
from trainables.data.store.store_spec import StoreSpec
from trainables.losses import LOSSES, LossPart
from trainables.models import ModelConfig
from trainables.models.backbones import backbone
from trainables.models.embedding import EmbeddingModel
from trainables.training.spec import TrialSpec
from trainables.training.train import train
from trainables.training.training_config import TrainingConfig

CIRCLE, RINGS, TINY = "examples.circle_loss:CircleLoss", "examples.rings:Rings", "examples.tiny_network:TinyNetwork"
OWN = "support.own_parts"


@pytest.fixture
def spec(tmp_path: Path) -> TrialSpec:
    dataset = DATASETS[RINGS](num_classes=8, images_per_class=6, size=24)
    names = tuple(dataset.classes())
    images = StoreSpec(dataset=dataset, class_names=names, short_side=18, cache=str(tmp_path / "cache"))
    return replace(
        small_spec(images, tmp_path, epochs=1), loss=CIRCLE, hyperparameters={"margin": 0.3},
        model=ModelConfig(backbone=TINY, embedding_dim=8),
        training=TrainingConfig(epochs=1, batch_size=12, image_size=16, sampler=f"{OWN}:Shuffled"),
        train_classes=names[:6], validation_classes=names[6:],
        metrics=("recall_at_1", f"{OWN}:spread"), objective=f"{OWN}:spread",
    )  # fmt: skip


def test_user_defined_parts_train(spec: TrialSpec) -> None:
    (record,) = train(pickle.loads(pickle.dumps(spec)))  # as another process gets it
    assert set(record["metrics"]) == {"recall_at_1", "spread"}
    assert record["metrics"]["spread"] > 0
    assert record["checkpoint"] == "attempt-1/best.safetensors"


def test_the_import_path_is_part_of_the_digest(spec: TrialSpec) -> None:
    assert len({replace(spec, loss=loss).digest for loss in (CIRCLE, f"{OWN}:Pull", "mpa")}) == 3


def test_a_user_defined_loss_has_its_space() -> None:
    training = TrainingConfig()
    found = search_space(CIRCLE, training, {"margin": {"high": 0.4}}, {})
    assert found.default == {"margin": 0.4, "scale": 80.0}
    assert found.clipped == ()
    named = LossPart(name="circle", path=CIRCLE)
    sentences = sentences_of(lambda: search_space(named, training, {"margin": -1, "marginal": 2}, {}))
    assert {re.split("[: ]", sentence)[0] for sentence in sentences} == {"space.circle.margin", "space.circle.marginal"}
    assert search_space(named, training, {"margin": -1}, {}, checked=False).default["margin"] == -1
    of_proxies = search_space(f"{OWN}:Proxies", training, {}, {"training": {"proxy_lr": 0.1}})
    assert "training.proxy_lr" not in of_proxies.parameters


def test_a_user_defined_network_declares_its_input() -> None:
    row = backbone(TINY)
    assert (row.features, row.mean, row.bgr, row.imagenet) == (48, (0.5, 0.5, 0.5), False, None)
    assert backbone(f"{OWN}:Tiny").scale == (1.0, 1.0, 1.0)  # the input is not scaled
    with pytest.raises(InvalidInput, match=r"with an attribute features, .* features is None"):
        backbone(f"{OWN}:spread")
    with pytest.raises(InvalidInput, match="has no ImageNet weights"):
        EmbeddingModel(ModelConfig(backbone=TINY, weights="imagenet"))


# Tables of parts, and import paths.


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("mylab.losses", "is not an import path: give module:Attribute"),
        ("support.nothing:Circle", r"no module support\.nothing is found"),
        ("support.own_parts:Pull.Inner", "has no Inner"),
        ("support.own_parts:Tiny", r"must be a class that derives from holdout\.parts\.Loss; it is <class"),
    ],
)
def test_a_wrong_import_path_is_one_sentence(path: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        LOSSES[path] if ":" in path else load_part(path, kind="loss")
    (sentence,) = caught.value.sentences
    assert sentence.startswith(f"The loss {path!r} ")


def test_parts_have_plain_names() -> None:
    assert LOSSES.plain_name("mpa") == "mpa"
    assert LOSSES.plain_name("support.own_parts:Pull") == "pull"
    assert LOSSES.plain_name("support.own_parts:WithoutSpace") == "without_space"  # not the inherited name
    assert plain_name(own_parts.map_at_r) == "map_at_r"
    assert plain_name(type("MPALoss2D", (), {})) == "mpa_loss2_d"
