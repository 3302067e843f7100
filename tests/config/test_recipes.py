"""Every recipe is a search file that runs; ``test_papers_settings`` compares it with its paper."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from tempfile import TemporaryDirectory

import pytest
from support.driving import made_trial
from support.trees import Trees, make_tree

from search.config.recipes import recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import apply_settings, read_yaml
from search.plan.make_plan import make_plan
from search.plan.plan import Plan, training_of
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
def test_a_recipe_names_itself_its_command_and_what_can_be_set(recipe: str, trees: Trees) -> None:
    config = configured(recipe, *at_tree(trees, recipe))
    assert config.name == recipe
    assert config.dataset.name == recipe.split("-")[1]
    what, command = recipes()[recipe].read_text().splitlines()[:2]
    assert what.startswith("# ")
    assert command == f"# holdout run {recipe} --set dataset.root=DIR"
    lines = list(named_settings(recipe))
    assert VARIED.get(recipe) in {None, *(setting for line in lines for setting in line)}
    for settings in lines:
        own = [setting for setting in settings if not setting.startswith("dataset.root=")]
        if "dataset.name=folder" not in own:
            configured(recipe, *at_tree(trees, recipe), *own)


@pytest.fixture(scope="module")
def plan(trees: Trees, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Plan]:
    runs = tmp_path_factory.mktemp("runs")
    return cache(lambda recipe: make_plan(configured(recipe, *at_tree(trees, recipe), *SMALL), runs))


@pytest.mark.parametrize("recipe", PAPERS)
def test_trial_0_of_every_loss_builds(recipe: str, plan: Callable[..., Plan]) -> None:
    for loss, space in plan(recipe).spaces.items():
        hyperparameters = space.default.loss
        LOSSES[loss](num_classes=3, embedding_dim=4, **hyperparameters)


@pytest.mark.parametrize("recipe", ["mpa-cub200", "pnp-sop", "topk-sop", "thesis-sop-resnet50"])
def test_a_recipe_of_each_paper_trains(recipe: str, plan: Callable[..., Plan]) -> None:
    """With the recipe's metrics."""
    made = plan(recipe)
    loss = made.config.loss_names[0]
    trial = made_trial(made.spaces[loss], made.spaces[loss].default)
    with TemporaryDirectory() as folder:
        (record,) = train(replace(training_of(made, loss, Stage.SEARCH, trial), directory=folder))
    assert tuple(record["metrics"]) == made.metrics
