"""Every recipe is a search file that runs; ``test_papers_settings`` compares it with its paper."""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.driving import made_trial
from support.spaces import spaces_of
from support.trees import Trees, make_tree

from search.config.recipes import recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import apply_settings, read_yaml
from search.plan.make_plan import make_plan
from search.plan.plan import training_of
from search.stages import Stage
from trainables.losses import LOSSES
from trainables.training.train import train

PAPERS = [name for name in recipes() if name != "quickstart"]

# What the papers vary beside it, as the recipes' comments tell to set it.
VARIED = {
    "pnp-sop": "training.batch_size=384",
    "pnp-vehicleid": "training.batch_size=384",
    "topk-cub200": "model.backbone=bninception",
    "topk-cars196": "model.backbone=bninception",
    "topk-sop": "model.backbone=bninception",
}

# A recipe made so small that it trains in moments, by the means that a user has.
SMALL = (
    "model.backbone=convnet", "model.weights=null", "training.epochs=1", "training.warmup_epochs=0",
    "training.image_size=64", "training.resize_size=null", "training.batch_size=6", "training.images_per_class=3",
    "metrics.test=all", "resources.gpus_per_trial=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """Trees with more images a class than the shared ones, which metrics of ten neighbours need."""
    above = tmp_path_factory.mktemp("trees")
    return cache(lambda name: make_tree(name, above / name, classes_per_half=4, images_per_class=6))


def configured(recipe: str, *settings: str) -> SearchConfig:
    return parse_config(apply_settings(read_yaml(recipes()[recipe]), settings))


def at_tree(trees: Trees, recipe: str) -> tuple[str, ...]:
    """Return the settings with which a recipe reads its data set's tree."""
    return (f"dataset.root={trees(recipe.split('-')[1])}", "dataset.subset=true")


def named_settings(recipe: str) -> Iterator[tuple[str, ...]]:
    """Yield every line of a recipe's comments that names settings."""
    for line in recipes()[recipe].read_text().splitlines():
        if found := re.findall(r"--set ([\w.]+=[\w.-]+)", line):
            yield tuple(found)


def test_one_recipe_a_paper_and_data_set_and_of_the_thesis_a_network() -> None:
    data_sets = ("cub200", "cars196", "sop")
    expected = {f"{paper}-{name}" for paper in ("mpa", "topk") for name in data_sets}
    expected |= {f"pnp-{name}" for name in ("sop", "vehicleid", "inaturalist")}
    networks = ("googlenet", "bninception", "resnet50")
    expected |= {f"thesis-{name}-{network}" for name in data_sets for network in networks}
    assert set(PAPERS) == expected


@pytest.mark.parametrize("recipe", PAPERS)
def test_a_recipe_names_itself_and_settings_and_its_losses_build(recipe: str, trees: Trees) -> None:
    config = configured(recipe, *at_tree(trees, recipe))
    assert config.name == recipe
    assert config.dataset.name == recipe.split("-")[1]
    for loss, space in spaces_of(config).items():
        LOSSES[loss](num_classes=3, embedding_dim=4, **space.default.loss)
    what, command = recipes()[recipe].read_text().splitlines()[:2]
    assert what.startswith("# ")
    assert command == f"# holdout run {recipe} --set dataset.root=DIR"
    lines = list(named_settings(recipe))
    assert VARIED.get(recipe) in {None, *(setting for line in lines for setting in line)}
    for settings in lines:
        own = [setting for setting in settings if not setting.startswith("dataset.root=")]
        if "dataset.name=folder" not in own:
            configured(recipe, *at_tree(trees, recipe), *own)


@pytest.mark.parametrize("recipe", ["mpa-cub200", "pnp-sop", "topk-sop", "thesis-sop-resnet50"])
def test_a_recipe_of_each_paper_trains(recipe: str, trees: Trees, tmp_path: Path) -> None:
    """With the recipe's metrics."""
    made = make_plan(configured(recipe, *at_tree(trees, recipe), *SMALL), tmp_path)
    loss = made.config.loss_names[0]
    trial = made_trial(made.spaces[loss], made.spaces[loss].default)
    (record,) = train(replace(training_of(made, loss, Stage.SEARCH, trial), directory=str(tmp_path / "trial")))
    assert tuple(record["metrics"]) == made.metrics
