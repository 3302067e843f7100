"""The search file: its defaults, and all mistakes of a file at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.refusals import sentences_of
from support.small_search import draw_folder

from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.config.yaml_file import apply_settings, parse_yaml
from search.plan.make_plan import make_plan
from trainables.errors import InvalidInput
from trainables.losses import loss_row

SearchFile = Callable[..., dict[str, Any]]

CONTRACT = """
name: quickstart
dataset: {name: glyphs, root: null, store_size: 256, cache: null}
split: {ratio: 0.9, seed: 0, folds: null, merge: null}
model: {backbone: convnet, weights: null, embedding_dim: 64, pooling: avg, freeze_bn: false, layer_norm: false,
        head_init: kaiming_normal}
training: {epochs: 8, batch_size: 120, sampler: balanced, images_per_class: 5, image_size: 32, resize_size: null,
           resize_square: false, augment: crop_flip, optimizer: adamw, lr: 1.0e-3, head_lr: null, proxy_lr: null,
           weight_decay: 1.0e-4, schedule: {step: null, milestones: [], gamma: 0.5}, warmup_epochs: 0, clip_grad: 10,
           precision: auto}
losses: [proxy_anchor, mpa, pnp]
search: {trials: 16, epochs: null, sampler: tpe, pruner: asha, objective: map_at_r, seed: 0,
         max_concurrent: null}
metrics: {validation: [recall_at_1, map_at_r], test: all, gallery: validation}
resources: {cpus_per_trial: 1, gpus_per_trial: 0}
selection: {finalists: 3, on: auto, better_by: 1, seeds: null}
final: {seeds: 3, train_on: train}
checkpoints: {storage_path: null, max_gb: null}
tracking: {uri: null, experiment: null}
stages: [search, select, test]
ship: []
"""


def sentences(content: dict[str, Any], runs: Path | None = None) -> list[str]:
    """Return the mistakes of a search file, in its form and beyond."""
    with pytest.raises(InvalidInput) as caught:  # noqa: PT012, one of the two refuses
        config = parse_config(content)
        make_plan(config, runs or Path("/nonexistent-runs"))
    return list(caught.value.sentences)


def test_the_defaults_are_those_of_the_contract() -> None:
    shortest = parse_config(
        {"name": "quickstart", "dataset": {"name": "glyphs"}, "losses": ["proxy_anchor", "mpa", "pnp"]}
    )
    assert shortest == parse_config(parse_yaml(CONTRACT, "contract"))


def test_the_example_of_equal_budgets_searches_the_same_of_every_training(tmp_path: Path) -> None:
    file = Path(__file__).parents[2] / "examples" / "equal_budgets.yaml"
    content = read_search(file, [f"dataset.root={draw_folder(tmp_path / 'images', classes=32)}"])
    plan = make_plan(parse_config(content), tmp_path / "runs")
    assert len(plan.spaces) == 14
    for loss, space in plan.spaces.items():
        assert "training.lr" in space.searched
        assert ("training.proxy_lr" in space.searched) == (loss_row(loss).proxy_lr is not None)


def test_the_resolved_file_is_read_back_as_itself(search_file: SearchFile) -> None:
    config = parse_config(search_file(space={"pnp": {"alpha": [2, 4]}}))
    assert parse_config(yaml.safe_load(config.to_yaml())) == config


def test_numbers_without_a_point_are_numbers() -> None:
    assert parse_yaml("lr: 1e-3", "text") == {"lr": 0.001}


def test_settings_reach_into_sections() -> None:
    content = apply_settings({"search": {"trials": 3}}, ["search.trials=5", "training.lr=1e-2", "losses=[mpa]"])
    assert content == {"search": {"trials": 5}, "training": {"lr": 0.01}, "losses": ["mpa"]}
    with pytest.raises(InvalidInput, match=r"needs key\.path=value"):
        apply_settings({}, ["search.trials"])


# Rows of ``tests/hostile/test_search_files.py`` are not repeated.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"search": {"objective": "map"}, "metrics": {"validation": ["recal_at_1"]}}, "recal_at_1 is not known"),
    (
        {"metrics": {"gallery": "training_half"}, "search": {"objective": "nmi"}},
        "metrics.gallery is training_half and search.objective nmi, which ranks no images",
    ),
    (
        {"metrics": {"validation": ["nmi_super"], "test": ["recall_at_1", "f1_super"]}},
        "metrics: nmi_super, f1_super need a data set that groups its classes into superclasses, as sop does, and",
    ),
    (
        {"metrics": {"test": ["recall_at_1-small", "map_at_r"]}},
        "metrics.test: recall_at_1-small is computed on a part of the test classes that folder does not have; it has "
        "none.",
    ),
    ({"training": {"schedule": {"step": 5, "milestones": [8]}}}, "give one of them and leave the other null or empty"),
    ({"training": {"resize_size": 400}}, "dataset.store_size is 256 and the training resizes images to 400"),
    ({"model": {"backbone": "resnet18", "weights": "imagenet"}}, "The ImageNet weights of resnet18 are not on this"),
    ({"dataset": {"name": "glyphs", "root": "/tmp"}}, "root: glyphs has no such option"),
    ({"split": {"merge": 1}}, "split.merge: "),
    ({"split": {"label_noise": 1.0}}, "split.label_noise: "),
    ({"selection": {"on": "thirds"}}, "selection.on: must be 'auto', 'halves' or 'split'; it is 'thirds'."),
    ({"selection": {"better_by": -1.0}}, "selection.better_by: must be at least 0; it is -1."),
    ({"split": {"merge": 6}}, "split.merge is 6 and 6 classes train at once"),
    ({"split": {"merge": 2}}, "training: A balanced batch of 20 with 5 images a class needs 4 classes, and the"),
    ({"resources": {"gpus_per_trial": 1}}, "resources.gpus_per_trial is 1 and this machine has"),
    (
        {"resources": {"gpus_per_trial": 2}},
        "resources.gpus_per_trial: must be at least 0, at most 1; it is 2.",
    ),
    ({"stages": ["select", "search"]}, "stages: "),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), MISTAKES, ids=[expected[:40] for _, expected in MISTAKES])
def test_a_mistake_is_one_clear_sentence(
    search_file: SearchFile, changes: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    found = sentences(search_file(**changes), tmp_path / "runs")
    assert any(expected in sentence for sentence in found), found
    assert all(sentence.endswith(".") for sentence in found), found
    assert not list(tmp_path.iterdir())


def test_a_missing_key_beside_a_wrong_one_is_said_once() -> None:
    assert sentences({"name": "x", "dataset": None}) == [
        "dataset: must be keys and values; it is None.",
        "losses: missing; this key is required.",
    ]
    assert sentences({}) == [f"{key}: missing; this key is required." for key in ("name", "dataset", "losses")]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({1: 2}, "1: no such section; remove it."),
        ({"training": {1: 2}}, "training.1: no such key; remove it."),
        ({"training": [1]}, "training: must be keys and values; it is [1]."),
        ({"metrics": {"test": 3}}, "metrics.test: must be 'all' or must be a list; it is 3."),
        ({"model": {"embedding_dim": 2.5}}, "model.embedding_dim: must be a whole number; it is 2.5."),
        ({"model": {"freeze_bn": "stats"}}, "model.freeze_bn: must be one of statistics, true, false; it is 'stats'"),
        (
            {"model": {"head_init": "normal"}},
            "model.head_init: must be one of kaiming_normal, linear, truncated_normal; it is 'normal' (did",
        ),
        ({"losses": None}, "losses: must be a list; it is None."),
        ({"final": {"train_on": "both"}}, "final.train_on: must be 'train' or 'all'; it is 'both'."),
    ],
)
def test_a_wrong_form_is_said_in_plain_words(search_file: SearchFile, content: dict[Any, Any], said: str) -> None:
    (sentence,) = sentences_of(lambda: parse_config({**search_file(), **content}))
    assert sentence.startswith(said)


def test_a_cluster_that_does_not_answer_is_said_at_once(
    search_file: SearchFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    (sentence,) = sentences(search_file())
    assert "RAY_ADDRESS is '127.0.0.1:9' and nothing answers there (Connection refused)" in sentence
