"""All mistakes of a search are reported at once, none of them false or repeated."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.own_parts import Greys
from support.refusals import sentences_of
from support.small_search import draw_folder, small_search

from search.plan.checks.data import unreadable_images
from search.plan.make_plan import read_plan

SearchFile = Callable[..., dict[str, Any]]


def sentences(content: dict[str, Any], runs: Path) -> list[str]:
    """Return the mistakes of a search file."""
    found = list(sentences_of(lambda: read_plan(content, runs)))
    assert len(set(found)) == len(found)
    assert not runs.exists()
    return found


def test_a_wrong_type_hides_nothing_that_planning_finds(search_file: SearchFile, tmp_path: Path) -> None:
    content = search_file(
        training={"epochs": "six", "batch_size": 100000, "image_size": 16},
        space={"pnp": {"alpha": 0.5}, "triplet": {}, "training": {"lr": -1}},
        metrics={"validation": ["recall_at_500", "recal_at_1"], "test": ["recall_at_1000"]},
        resources={"cpus_per_trial": 9999},
        search={"trials": 0},
        tracking={"uri": "http://127.0.0.1:9/"},
        colour=1,
    )
    found = sentences(content, tmp_path / "runs")
    for part in (
        "training.epochs: must be a whole number; it is 'six'.",
        "search.trials: must be at least 1; it is 0.",
        "metrics.validation: recal_at_1 is not known",
        "colour: no such section",
        "training: A balanced batch of 100000",
        "space.pnp.alpha: ",
        "space.triplet: ",
        "space.training.lr: ",
        "metrics: k = 500 needs more than 500 images",
        "metrics: k = 1000 needs more than 1000 images",
        "resources.cpus_per_trial is 9999",
        "no MLflow server answers",
    ):
        assert sum(part in sentence for sentence in found) == 1, (part, found)
    assert len(found) == 12, found


def test_a_missing_or_wrong_required_key_hides_nothing_that_does_not_rest_on_it(tmp_path: Path) -> None:
    content = {
        "name": "a/b", "losses": ["mpa"], "space": {"mpa": {"alfa": 1}, "pnp": {}},
        "resources": {"cpus_per_trial": 9999}, "training": {"batch_size": 100000},
    }  # fmt: skip
    found = sentences(content, tmp_path / "runs")
    assert [sentence.split(" ")[0] for sentence in found] == [
        "name:",
        "dataset:",
        "space.pnp:",
        "space.mpa.alfa:",
        "resources.cpus_per_trial",
    ]


# A wrong entry, and beside it one that would be wrong beside the default that stands in its stead.
NOT_KNOWN: list[dict[str, Any]] = [
    {"training": {"batch_size": "20", "images_per_class": 7}},
    {"training": {"epochs": 0, "warmup_epochs": 20, "batch_size": 20}},
    {"training": {"epochs": "80", "batch_size": 20}, "space": {"training": {"warmup_epochs": [20]}}},
    {"training": {"batch_size": 20, "image_size": "400"}, "dataset.store_size": 20},
    {"model": {"backbone": 5, "weights": "imagenet"}},
    {"search": {"sampler": "gp", "pruner": "nono"}},
    {"split": {"folds": 4, "ratio": "0.9"}},
    {"losses": ["proxy_anchr", "pnp"], "space": {"proxy_anchor": {"margin": 0.1}}},
    {"metrics": {"validation": "recall_at_500"}},
    {"dataset": {"name": "glyphs", "images_per_class": "many"}, "metrics": {"validation": ["recall_at_1000"]}},
    {"dataset": {"name": "folder", "root": "/nonexistent"}, "training": {"batch_size": 100000}},
]


@pytest.mark.parametrize("changes", NOT_KNOWN, ids=[str(changes)[:60] for changes in NOT_KNOWN])
def test_nothing_is_said_of_a_default_that_stands_for_a_wrong_entry(
    search_file: SearchFile, changes: dict[str, Any], tmp_path: Path
) -> None:
    store_size = changes.pop("dataset.store_size", None)
    content = search_file(**changes)
    if store_size:
        content["dataset"]["store_size"] = store_size
    found = sentences(content, tmp_path / "runs")
    assert len(found) == 1, found


def test_an_unreadable_image_comes_with_the_other_mistakes(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images")
    runs = tmp_path / "runs"
    plan = read_plan(small_search(root), runs)
    training, test = plan.split.train[0], plan.split.test[0]
    (root / training / "00.png").write_bytes(b"no image")
    (root / test / "00.png").write_bytes(b"no image")
    content = small_search(root, training={"batch_size": 100000}, search={"trials": "many"})
    found = sentences(content, runs)
    assert found[0] == "search.trials: must be a whole number; it is 'many'."
    assert found[1].startswith("training: A balanced batch of 100000")
    (unreadable,) = found[2:]
    assert unreadable.startswith(f"1 of 80 images cannot be read: {training}/00.png (not an image of a known format)")
    assert test not in unreadable


class Broken(Greys):
    """A data set whose images cannot be read."""

    def read(self, key: str) -> np.ndarray:
        raise OSError(2, "No such file or directory")


def test_the_look_at_images_ends_in_time_and_says_how_far_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(seconds)))
    (sentence,) = unreadable_images(Broken(), [str(number) for number in range(1000)], seconds=20)
    assert "of the first " in sentence
    assert " of 1000 images cannot be read: 0 (No such file or directory); 1 (" in sentence


@pytest.mark.parametrize(
    ("batches", "missing"),
    [
        ({"batch_size": 20, "images_per_class": 20}, "images of two classes"),
        ({"batch_size": 4, "images_per_class": 1, "sampler": "up_to"}, "two images of a class"),
    ],
)
def test_batches_without_pairs_are_refused_for_losses_of_pairs(
    search_file: SearchFile, tmp_path: Path, batches: dict[str, Any], missing: str
) -> None:
    (found,) = sentences(search_file(losses=["proxy_anchor", "triplet", "pnp"], training=batches), tmp_path / "runs")
    assert found.startswith(f"training: no batch holds {missing}, which triplet, pnp compare, so")


def test_searched_poolings_that_a_network_of_ones_own_does_not_take(search_file: SearchFile, tmp_path: Path) -> None:
    model = {"backbone": "support.tiny_transformer:TinyTransformer", "pooling": "cls", "embedding_dim": 4}
    space = {"model": {"pooling": ["cls", "mean", "gem"]}}
    training = {"epochs": 3, "batch_size": 20, "images_per_class": 5, "image_size": 32}
    content = search_file(model=model, space=space, training=training)
    (found,) = sentences(content, tmp_path / "runs")
    assert found.startswith("space.model: model.pooling is gem, which needs maps, and support.tiny_transformer:Tiny")
