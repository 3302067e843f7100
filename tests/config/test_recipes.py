"""Every recipe is a search file that runs with its paper's settings."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import filter as matching
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from support.driving import made_trial
from support.trees import make_tree

from search.config.recipes import recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import apply_settings, read_yaml
from search.plan.make_plan import make_plan
from search.plan.plan import Plan, training_of
from search.stages import Stage
from trainables.losses import LOSSES, loss_row
from trainables.training.train import train

PAPERS = [name for name in recipes() if name != "quickstart"]
Trees = Callable[[str], Path]  # a data set's name → a small folder of its form

# As the papers print it: Saeki et al., section 4.2; Lu et al., section 4.4; Li et al., the experimental set-up;
# Psomas, section 3.4 and Table 3; PNP's epochs and Psomas's augmentation are those of their released code. A row holds
# for every recipe that it matches.
PRINTED: list[tuple[str, dict[str, Any]]] = [
    ("mpa-*", {"model.backbone": "bninception", "model.weights": "imagenet", "model.embedding_dim": 512}),
    ("mpa-*", {"training.optimizer": "adamw", "training.lr": 1e-4, "training.proxy_lr": 1e-2}),
    ("mpa-*", {"training.schedule.step": 20, "training.schedule.milestones": (), "training.schedule.gamma": 0.5}),
    ("mpa-*", {"training.schedule.decay": None, "training.sampler": "random"}),
    ("mpa-*", {"training.image_size": 224, "training.augment": "resized_crop_flip", "model.pooling": "gem"}),
    ("mpa-*", {"training.resize_size": None, "training.resize_square": True}),
    ("mpa-*", {"final.seeds": 3}),
    ("mpa-cub200", {"training.batch_size": 180, "training.epochs": 60}),
    ("mpa-cars196", {"training.batch_size": 64, "training.epochs": 60}),
    ("mpa-sop", {"training.batch_size": 32, "training.epochs": 100}),
    ("topk-*", {"model.backbone": "densenet201", "model.weights": "imagenet", "model.pooling": "avg"}),
    ("topk-*", {"training.optimizer": "adam", "training.batch_size": 64, "training.sampler": "up_to"}),
    ("topk-*", {"training.images_per_class": 11, "training.image_size": 227, "training.resize_size": 256}),
    ("topk-*", {"training.augment": "crop", "training.resize_square": True}),
    ("topk-c*", {"model.embedding_dim": 64}),
    ("topk-sop", {"model.embedding_dim": 512}),
    ("pnp-*", {"model.backbone": "resnet50", "model.weights": "imagenet", "model.embedding_dim": 512}),
    ("pnp-*", {"training.optimizer": "adam", "training.lr": 1e-5, "training.weight_decay": 4e-4}),
    ("pnp-*", {"training.sampler": "balanced", "training.images_per_class": 4, "training.epochs": 400}),
    ("pnp-*", {"training.image_size": 224, "training.augment": "crop_flip", "model.pooling": "avg"}),
    ("pnp-*", {"training.resize_size": None, "training.resize_square": True}),
    ("pnp-sop", {"training.batch_size": 112}),
    ("pnp-vehicleid", {"training.batch_size": 112}),
    ("pnp-inaturalist", {"training.batch_size": 224}),
    ("thesis-*", {"training.epochs": 100, "training.optimizer": "adamw", "model.embedding_dim": 512}),
    ("thesis-*", {"training.sampler": "random", "training.images_per_class": 5, "split.ratio": 0.9}),
    ("thesis-*", {"training.augment": "resized_crop_flip", "training.resize_square": False}),
    ("thesis-*-resnet50", {"model.backbone": "resnet50", "training.batch_size": 100}),
    ("thesis-*-bninception", {"model.backbone": "bninception", "training.batch_size": 180}),
    ("thesis-*-googlenet", {"model.backbone": "googlenet", "training.batch_size": 180}),
    ("thesis-c*", {"training.lr": 1e-4, "training.schedule.gamma": 0.1}),
    ("thesis-sop-*", {"training.lr": 6e-4, "training.schedule.gamma": 0.25}),
    ("thesis-cub200-resnet50", {"training.schedule.step": 5}),
    ("thesis-cub200-[bg]*", {"training.schedule.step": 10}),
    ("thesis-cars196-resnet50", {"training.schedule.step": 10}),
    ("thesis-cars196-[bg]*", {"training.schedule.step": 20}),
    ("thesis-sop-resnet50", {"training.schedule.step": 10}),
    ("thesis-sop-[bg]*", {"training.schedule.step": 20}),
]  # fmt: skip

_MPA = {"gamma": 0.1, "tau": 0.2, "margin": 0.1}

# The same of the losses' hyperparameters: what trial 0 has. Psomas, Tables 4 and 5; its gamma of SoftTriple multiplies.
PRINTED_OF_LOSSES: list[tuple[str, str, dict[str, Any]]] = [
    *[("mpa-c*", loss, _MPA | {"proxies_per_class": 10}) for loss in ("mpa", "mpa_dw", "mpa_ap")],
    *[("mpa-sop", loss, _MPA | {"proxies_per_class": 2}) for loss in ("mpa", "mpa_dw", "mpa_ap")],
    ("topk-*", "topk_precision", {"margin": 0.1, "k": 5}),
    ("pnp-*", "pnp", {"variant": "Dq", "temperature": 0.01}),
    ("thesis-*", "contrastive", {"margin": 0.5}),
    ("thesis-*", "triplet", {"margin": 0.1, "mining": "semi_hard"}),
    ("thesis-*", "lifted_structure", {"margin": 0.5, "mining": "hard"}),
    ("thesis-*", "npair", {"l2": 0.02}),
    ("thesis-*", "margin", {"margin": 0.5, "beta": 1.2, "mining": "distance_weighted"}),
    ("thesis-*", "arcface", {"margin": 28.6, "scale": 64}),
    ("thesis-*", "multi_similarity", {"margin": 0.5, "pos_scale": 2, "neg_scale": 50, "epsilon": 0.1}),
    ("thesis-*", "soft_triple", {"margin": 0.1, "scale": 20, "gamma": 1 / 10, "tau": 0.2}),
    ("thesis-*", "proxy_anchor", {"margin": 0.1, "scale": 32}),
    ("thesis-*", "proxy_push", {"similarity": "data"}),
]

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
    "model.weights=null",
    "training.epochs=1",
    "training.warmup_epochs=0",
    "training.image_size=64",
    "training.resize_size=null",
    "training.batch_size=6",
    "training.images_per_class=3",
    "metrics.test=all",
    "resources.gpus_per_trial=0",
)


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    root = tmp_path_factory.mktemp("trees")
    return cache(lambda name: make_tree(name, root / name, classes_per_half=4, images_per_class=6))


def configured(recipe: str, *settings: str) -> SearchConfig:
    """Return a recipe as the command reads it."""
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
def test_a_recipe_names_itself_its_data_set_and_its_command(recipe: str, trees: Trees) -> None:
    config = configured(recipe, *at_tree(trees, recipe))
    assert config.name == recipe
    assert config.dataset.name == recipe.split("-")[1]
    what, command = recipes()[recipe].read_text().splitlines()[:2]
    assert what.startswith("# ")
    assert command == f"# holdout run {recipe} --set dataset.root=DIR"


@pytest.mark.parametrize(("pattern", "values"), PRINTED, ids=[f"{row[0]} {', '.join(row[1])}" for row in PRINTED])
def test_printed_values_stand_in_the_recipes(pattern: str, values: dict[str, Any], trees: Trees) -> None:
    names = matching(PAPERS, pattern)
    assert names
    for recipe in names:
        config = configured(recipe, *at_tree(trees, recipe)).model_dump()
        for path, value in values.items():
            found: Any = config
            for key in path.split("."):
                found = found[key]
            assert found == value, f"{recipe}: {path}"


@pytest.mark.parametrize("recipe", PAPERS)
def test_what_a_comment_says_to_set_can_be_set(recipe: str, trees: Trees) -> None:
    lines = list(named_settings(recipe))
    assert VARIED.get(recipe) in {None, *(setting for line in lines for setting in line)}
    for settings in lines:
        own = [setting for setting in settings if not setting.startswith("dataset.root=")]
        if "dataset.name=folder" not in own:
            configured(recipe, *at_tree(trees, recipe), *own)


@pytest.fixture(scope="module")
def plan(trees: Trees, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Plan]:
    runs = tmp_path_factory.mktemp("runs")
    return lambda recipe, *settings: make_plan(configured(recipe, *at_tree(trees, recipe), *SMALL, *settings), runs)


@pytest.mark.parametrize(("pattern", "loss", "values"), PRINTED_OF_LOSSES)
def test_trial_0_is_what_the_paper_prints(
    pattern: str, loss: str, values: dict[str, Any], plan: Callable[..., Plan]
) -> None:
    for recipe in matching(PAPERS, pattern):
        default = plan(recipe).spaces[loss].default
        assert {name: default[name] for name in values} == values, recipe


@pytest.mark.parametrize(("loss", "printed"), [("proxy_nca", 1e-5), ("arcface", 1e-4), ("soft_triple", 1e-4)])
def test_proxies_of_the_thesis_learn_at_the_printed_rate(loss: str, printed: float, plan: Callable[..., Plan]) -> None:
    for recipe in matching(PAPERS, "thesis-*"):
        made = plan(recipe)
        trial = made_trial(made.spaces[loss], made.spaces[loss].default)
        spec = training_of(made, loss, Stage.SEARCH, trial)
        assert (spec.training.proxy_lr or loss_row(loss).proxy_lr) == printed, recipe


@pytest.mark.parametrize("recipe", PAPERS)
def test_trial_0_of_every_loss_builds(recipe: str, plan: Callable[..., Plan]) -> None:
    for loss, space in plan(recipe).spaces.items():
        hyperparameters = space.default.loss
        LOSSES[loss](num_classes=3, embedding_dim=4, **hyperparameters)


def trains(plan: Plan, loss: str) -> None:
    """Trial 0 of ``loss`` trains, and is validated with the recipe's metrics."""
    trial = made_trial(plan.spaces[loss], plan.spaces[loss].default)
    with TemporaryDirectory() as folder:  # a checkpoint of these networks is too large to be kept with a test's files
        (record,) = train(replace(training_of(plan, loss, Stage.SEARCH, trial), directory=folder))
    assert tuple(record["metrics"]) == plan.metrics


# One recipe for each network of a paper, and for each of its losses: the rest differ in numbers.
_CONTENTS = {recipe: read_yaml(recipes()[recipe]) for recipe in PAPERS}
NETWORKS = {(recipe.split("-")[0], content["model"]["backbone"]): recipe for recipe, content in _CONTENTS.items()}
LOSSES_OF = {
    (recipe.split("-")[0], loss): recipe for recipe, content in _CONTENTS.items() for loss in content["losses"]
}


@pytest.mark.parametrize("recipe", NETWORKS.values())
def test_the_network_of_a_recipe_trains(recipe: str, plan: Callable[..., Plan]) -> None:
    made = plan(recipe)
    trains(made, made.config.loss_names[0])


@pytest.mark.parametrize(("paper", "loss"), LOSSES_OF)
def test_every_loss_of_a_paper_trains(paper: str, loss: str, plan: Callable[..., Plan]) -> None:
    trains(plan(LOSSES_OF[paper, loss], "model.backbone=convnet"), loss)


@pytest.mark.parametrize("recipe", [recipe for recipe in PAPERS if recipe.startswith("thesis")])
def test_a_recipe_of_the_thesis_runs_on_a_folder(recipe: str, image_folder: Path, tmp_path: Path) -> None:
    settings = ("dataset.name=folder", f"dataset.root={image_folder}", *SMALL)
    make_plan(configured(recipe, *settings, "metrics.validation=[recall_at_1]"), tmp_path)
