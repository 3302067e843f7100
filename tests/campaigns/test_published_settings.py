"""A paper's numbers stand beside its own setting alone."""

from pathlib import Path
from typing import Any

import pytest
from support.trees import make_tree

from search.campaigns.tables import comparable
from search.config.campaign import parse_campaign
from search.config.recipes import read_campaign
from search.config.yaml_file import apply_settings

CELLS = {"mpa 1": [60.0], "mpa 2": [61.0], "pnp 1": [50.0], "pnp 2": [51.0]}
WRITTEN: dict[str, Any] = {
    "name": "tiny",
    "study": "a test",
    "base": {
        "dataset": {"name": "glyphs", "num_classes": 12, "images_per_class": 6},
        "losses": ["mpa", "pnp"],
        "training": {"batch_size": 20, "epochs": 4},
    },
    "vary": {"K": {"1": {"space.mpa.proxies_per_class": 1}, "2": {"space.mpa.proxies_per_class": 2}}},
    "table": {"rows": ["K"]},
    "published": [{"source": "Table 1", "role": "default", "metrics": ["recall_at_1"], "cells": CELLS}],
}


def published(*settings: str) -> tuple[dict[str, Any], str | None]:
    """The cells that stay under ``settings``, and why the others do not."""
    (section,) = parse_campaign(comparable(apply_settings(WRITTEN, settings), WRITTEN)).config.published
    return {key: list(values) for key, values in section.cells.items()}, section.left_out


@pytest.mark.parametrize(
    "setting",
    [
        "base.training.epochs=4",
        "base.search.trials=3",
        "base.final.seeds=1",
        "base.dataset.cache=/tmp/elsewhere",
        "base.training.precision=auto",
        "base.metrics.validation=[map_at_r]",
    ],
)
def test_what_is_the_paper_s_setting_keeps_its_numbers(setting: str) -> None:
    assert published(setting) == (CELLS, None)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("base.training.epochs=2", "training.epochs is 2 here and 4 there"),
        ("base.model.backbone=resnet18", "model.backbone is 'resnet18' here and 'convnet' there"),
        ("base.dataset.num_classes=16", "dataset.num_classes is 16 here and 12 there"),
        ("base.split.ratio=0.5", "split.ratio is 0.5 here and 0.9 there"),
        ("base.space.training.lr=0.5", "space.training.lr is 0.5 here and None there"),
    ],
)
def test_another_setting_goes_without_them_and_says_why(setting: str, told: str) -> None:
    assert published(setting) == ({}, f"of another setting: {told}")


def test_only_what_the_setting_touches_goes() -> None:
    cells, told = published("vary.K.2.space.mpa.proxies_per_class=8")
    assert cells.keys() == CELLS.keys() - {"mpa 2"}
    assert told == "of another setting: space.mpa.proxies_per_class is 8 here and 2 there"
    cells, told = published("base.training_by_loss.pnp.lr=0.01")
    assert cells.keys() == {"mpa 1", "mpa 2"}
    assert told == "of another setting: training.lr is 0.01 here and 0.001 there"


def test_losses_that_are_left_out_take_their_numbers_with_them() -> None:
    cells, told = published("base.losses=[pnp]", "vary={K: {1: {}, 2: {}}}")
    assert (cells.keys(), told) == ({"pnp 1", "pnp 2"}, None)


def test_many_differences_are_counted() -> None:
    _, told = published(*(f"base.training.{name}=1" for name in ("lr", "weight_decay", "epochs", "clip_grad")))
    assert told is not None
    assert told.endswith("there, and 1 more differ")


def test_a_shipped_campaign_on_its_own_data_keeps_all_and_on_a_part_none(tmp_path: Path) -> None:
    make_tree("cub200", tmp_path, classes_per_half=8, images_per_class=3)
    name = Path("split-ratio-cub200")
    written = read_campaign(name)
    root = f"base.dataset.root={tmp_path}"
    assert comparable(read_campaign(name, [root]), written)["published"][0]["left_out"] is None
    on_part = comparable(read_campaign(name, [root, "base.dataset.subset=true"]), written)
    assert [section["cells"] for section in on_part["published"]] == [{}]
    assert on_part["published"][0]["left_out"] == "of another setting: dataset.subset is True here and None there"


def test_a_mistaken_file_is_left_for_the_parser_to_refuse() -> None:
    wrong = {**WRITTEN, "vary": 3}
    assert comparable(wrong, WRITTEN) is wrong
