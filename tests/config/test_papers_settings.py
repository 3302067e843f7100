"""The recipes and campaigns against the settings printed in the papers, copied here by hand.

Compared is the resulting training of trial 0 of each loss, not the text of the search file.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as matching
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.driving import made_trial
from support.spaces import spaces_of
from support.trees import Trees, make_tree, recipe_on, varied_on

from search.config.recipes import campaigns, read_search, recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import apply_settings, read_yaml
from search.driver.make_plan import make_plan
from search.records.plan import training_of
from search.stages import Stage
from spaces.search_space import SearchSpace
from spaces.space import Params
from trainables.losses import LOSSES, loss_row
from trainables.training.train import train
from trainables.training.training_config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Run:
    """Trial 0 of a loss."""

    config: SearchConfig
    loss: str
    configuration: Params

    @property
    def training(self) -> TrainingConfig:
        return replace(self.config.training_of(self.loss), **self.configuration.training)

    def rate(self, epoch: int) -> float:
        """Return the network's learning rate in an epoch, relative to the first, computed step by step."""
        training = self.training
        rate = training.lr
        for before in range(1, epoch):
            if before in training.schedule.changes(training.epochs):
                rate *= training.schedule.gamma
        return round(rate, 15)


FACTS: dict[str, Callable[[Run], Any]] = {
    "network": lambda run: run.config.model.backbone,
    "pretrained on": lambda run: run.config.model.weights,
    "dimensions": lambda run: run.config.model.embedding_dim,
    "pooling": lambda run: run.config.model.pooling,
    "batch normalisation": lambda run: run.config.model.freeze_bn,
    "embedding layer": lambda run: run.config.model.head_init,
    "warm-up": lambda run: run.training.warmup_epochs,
    "optimiser": lambda run: run.training.optimizer,
    "learning rate": lambda run: run.rate(1),
    "learning rate of the proxies": lambda run: run.training.proxy_lr or loss_row(run.loss).proxy_lr,
    "weight decay": lambda run: run.training.weight_decay,
    "batch": lambda run: run.training.batch_size,
    "sampling": lambda run: run.training.sampler,
    "images of a class": lambda run: run.training.images_per_class,
    "epochs": lambda run: run.training.epochs,
    "resized to": lambda run: run.training.frame.short_side,
    "crop": lambda run: run.training.frame.side,
    "resized square": lambda run: run.training.resize_square,
    "augmentation": lambda run: run.training.augment,
    "precision": lambda run: run.training.precision,
    "part that trains": lambda run: run.config.split.ratio,
    "folds": lambda run: run.config.split.folds,
    "classes merged": lambda run: run.config.split.merge,
    "trainings": lambda run: run.config.final.seeds,
}


def fact(run: Run, what: str) -> Any:
    """Return ``what`` of a run: a row of ``FACTS``, ``rate in epoch 21``, or a hyperparameter of its loss."""
    if what.startswith("rate in epoch "):
        return run.rate(int(what.rpartition(" ")[2]))
    return FACTS[what](run) if what in FACTS else run.configuration[what]


MPA, TOPK, PNP, THESIS = "Saeki et al. 2023", "Lu et al. 2019", "Li et al. 2022", "Psomas 2020"
CODE = "Kim et al. 2020, released code"
THESIS_CODE = "Psomas 2020, released code"
PNP_CODE, TOPK_CODE = "Li et al. 2022, released code", "Lu et al. 2019, released code"
FAMILY = ("mpa", "mpa_dw", "mpa_ap")
ALL: Sequence[str] = ()
PAIRS = ("contrastive", "triplet", "lifted_structure", "npair", "margin", "multi_similarity")
PROXIES = ("proxy_nca", "arcface", "soft_triple", "proxy_anchor", "proxy_push")

# paper, section or table, recipes, losses (all where none is named), settings
PRINTED: list[tuple[str, str, str, Sequence[str], dict[str, Any]]] = [
    (MPA, "4.2", "mpa-*", ALL, {"network": "bninception", "pretrained on": "imagenet", "dimensions": 512}),
    (MPA, "4.2", "mpa-*", ALL, {"pooling": "gem", "crop": 224, "resized to": 256, "optimiser": "adamw"}),
    (MPA, "4.2", "mpa-*", ALL, {"learning rate": 1e-4, "learning rate of the proxies": 1e-2, "sampling": "random"}),
    (MPA, "4.2", "mpa-cub200", ALL, {"batch": 180, "epochs": 60}),
    (MPA, "4.2", "mpa-cars196", ALL, {"batch": 64, "epochs": 60}),
    (MPA, "4.2", "mpa-sop", ALL, {"batch": 32, "epochs": 100}),
    (MPA, "4.2", "mpa-*", FAMILY, {"tau": 0.2, "gamma": 0.1, "margin": 0.1}),
    (MPA, "4.2", "mpa-c*", (*FAMILY, "soft_triple"), {"proxies_per_class": 10}),
    (MPA, "4.2", "mpa-sop", (*FAMILY, "soft_triple"), {"proxies_per_class": 2}),
    (MPA, "4.2", "mpa-*", ALL, {"trainings": 3}),
    (TOPK, "4.4, Table 1", "topk-*", ALL, {"network": "densenet201", "pretrained on": "imagenet"}),
    (TOPK, "4.4", "topk-c*", ALL, {"dimensions": 64}),
    (TOPK, "4.4", "topk-sop", ALL, {"dimensions": 512}),
    (TOPK, "4.4", "topk-*", ALL, {"resized to": 256, "crop": 227, "optimiser": "adam"}),
    (TOPK, "4.4", "topk-*", ALL, {"batch": 64, "images of a class": 11, "sampling": "up_to"}),
    (TOPK, "4.4", "topk-*", ("topk_precision",), {"margin": 0.1, "k": 5}),
    (PNP, "set-up", "pnp-*", ALL, {"network": "resnet50", "pretrained on": "imagenet", "optimiser": "adam"}),
    (PNP, "set-up", "pnp-*", ALL, {"learning rate": 1e-5, "weight decay": 4e-4, "resized to": 256, "crop": 224}),
    (PNP, "set-up", "pnp-*", ("pnp", "smooth_ap"), {"temperature": 0.01}),
    (PNP, "set-up, Figure 8 (c)", "pnp-*", ALL, {"sampling": "balanced", "images of a class": 4}),
    (PNP, "SOP, VehicleID, INaturalist", "pnp-*", ALL, {"dimensions": 512}),
    (PNP, "Tables 1 and 2", "pnp-[sv]*", ALL, {"batch": 112}),
    (PNP, "Table 5", "pnp-inaturalist", ALL, {"batch": 224}),
    (PNP, "Tables 3 to 5", "pnp-*", ("pnp",), {"variant": "Dq"}),
    (MPA, "4.2", "mpa-*", ALL, {"resized square": True, "augmentation": "resized_crop_flip"}),
    (TOPK, "4.4", "topk-*", ALL, {"resized square": True, "augmentation": "crop", "pooling": "avg"}),
    (PNP, "set-up", "pnp-*", ALL, {"resized square": True, "augmentation": "crop_flip", "pooling": "avg"}),
    (THESIS, "3.4", "thesis-*", ALL, {"epochs": 100, "optimiser": "adamw", "pretrained on": "imagenet"}),
    (THESIS_CODE, "dataset/utils.py", "thesis-*", ALL, {"resized to": 256, "crop": 224, "resized square": False}),
    (THESIS_CODE, "dataset/utils.py", "thesis-*", ALL, {"augmentation": "resized_crop_flip"}),
    (THESIS, "5.2", "thesis-*", ALL, {"part that trains": 0.9}),
    (THESIS, "4.2.2", "thesis-*", ALL, {"dimensions": 512}),
    (THESIS, "3.2, 3.4", "thesis-*-resnet50", ALL, {"network": "resnet50", "batch": 100}),
    (THESIS, "3.2, 3.4", "thesis-*-bninception", ALL, {"network": "bninception", "batch": 180}),
    (THESIS, "3.2, 3.4", "thesis-*-googlenet", ALL, {"network": "googlenet", "batch": 180}),
    (THESIS, "3.4", "thesis-*", PAIRS, {"sampling": "balanced", "images of a class": 5}),
    (THESIS, "3.4", "thesis-*", PROXIES, {"sampling": "random"}),
    (THESIS, "Table 4", "thesis-*", ("contrastive", "lifted_structure"), {"margin": 0.5}),
    (THESIS, "Table 4", "thesis-*", ("triplet",), {"margin": 0.1}),
    (THESIS, "Table 4", "thesis-*", ("npair",), {"l2": 0.02}),
    (THESIS, "Table 4", "thesis-*", ("proxy_nca",), {"learning rate of the proxies": 1e-5}),
    (THESIS, "Table 4", "thesis-*", ("margin",), {"margin": 0.5, "beta": 1.2}),
    (THESIS, "Table 4", "thesis-*", ("arcface",), {"margin": 28.6, "scale": 64, "learning rate of the proxies": 1e-4}),
    (THESIS, "Table 4", "thesis-*", ("multi_similarity",), {"margin": 0.5, "pos_scale": 2, "neg_scale": 50}),
    (THESIS, "Table 4", "thesis-*", ("multi_similarity",), {"epsilon": 0.1}),
    # its gamma multiplies where ours divides
    (THESIS, "Table 4", "thesis-*", ("soft_triple",), {"margin": 0.1, "scale": 20, "gamma": 1 / 10, "tau": 0.2}),
    (THESIS, "Table 4", "thesis-*", ("proxy_anchor",), {"margin": 0.1, "scale": 32}),
    (THESIS, "Table 4", "thesis-*", ("soft_triple",), {"learning rate of the proxies": 1e-4}),
    (THESIS, "Table 5", "thesis-*", ("lifted_structure",), {"mining": "hard"}),
    (THESIS, "Table 5", "thesis-*", ("triplet",), {"mining": "semi_hard"}),
    (THESIS, "Table 5", "thesis-*", ("margin",), {"mining": "distance_weighted"}),
    (THESIS, "6, Tables 17 to 19", "thesis-*", ("proxy_push",), {"similarity": "data"}),
    (CODE, "--lr 1e-4, × 100", "thesis-c*", ("proxy_anchor",), {"learning rate of the proxies": 1e-2}),
    (CODE, "--lr 6e-4, × 100", "thesis-sop-*", ("proxy_anchor",), {"learning rate of the proxies": 6e-2}),
    (CODE, "--bn-freeze 1, train.py", "mpa-c*", ALL, {"batch normalisation": "statistics", "warm-up": 1}),
    (CODE, "--bn-freeze 0, net/", "mpa-sop", ALL, {"batch normalisation": False, "embedding layer": "kaiming_normal"}),
    (CODE, "net/", "mpa-c*", ALL, {"embedding layer": "kaiming_normal"}),
    (THESIS_CODE, "--bn-freeze 1, train.py", "thesis-c*", ALL, {"batch normalisation": "statistics"}),
    (THESIS_CODE, "net/", "thesis-*", ALL, {"embedding layer": "kaiming_normal", "pooling": "avg_max"}),
    (CODE, "--bn-freeze 0", "thesis-sop-*", ALL, {"batch normalisation": False}),
    (PNP_CODE, "architectures/", "pnp-*", ALL, {"batch normalisation": "statistics", "embedding layer": "linear"}),
    (TOPK_CODE, "models/", "topk-*", ALL, {"batch normalisation": False, "embedding layer": "truncated_normal"}),
    ("all", "no other is named", "[mpt]*-*", ALL, {"precision": "float32"}),
]  # fmt: skip

# paper, section or table, campaigns, losses, what varies, its values over all searches
VARIED: list[tuple[str, str, str, Sequence[str], str, set[Any]]] = [
    (MPA, "4.4", "proxies-c*", ("mpa",), "proxies_per_class", {1, 4, 8, 12, 16}),
    (TOPK, "4.2", "sampling-*", ("triplet",), "mining", {"uniform", "hard", "semi_hard", "distance_weighted"}),
    (PNP, "Tables 1 and 2", "pnp-variants-[sv]*", ("pnp",), "variant", {"O", "Iu", "Ib", "Ds", "Dq"}),
    (PNP, "Tables 6 and 7, and the text", "multi-centre-[sv]*", ("pnp",), "variant", {"Iu", "Ib", "Dq"}),
    (PNP, "Table 6", "multi-centre-sop", ALL, "classes merged", {None, 3}),
    (PNP, "Table 7", "multi-centre-vehicleid", ALL, "classes merged", {3}),
    (THESIS, "3.2", "loss-benchmark-c*", ALL, "dimensions", {64, 128, 512, 1024}),
    (THESIS, "3.2", "loss-benchmark-c*", ALL, "network", {"resnet50", "bninception", "googlenet"}),
    (THESIS, "3.4", "loss-benchmark-c*", ALL, "batch", {100, 180}),
    (THESIS, "Table 3", "loss-benchmark-cub200", ALL, "rate in epoch 10", {1e-5, 1e-4}),
    (THESIS, "Table 3", "loss-benchmark-cars196", ALL, "rate in epoch 20", {1e-5, 1e-4}),
    (THESIS, "Table 14", "split-ratio-cub200", ALL, "part that trains", {0.7, 0.8, 0.9, 0.95}),
    (THESIS, "5.1", "cross-validation-cub200", ALL, "folds", {None, 10}),
]  # fmt: skip

_TENTHS = [0.1 * step for step in range(11)]
_EVEN = [2.0 * step for step in range(1, 51)]

# Table 15: every hyperparameter's range of search and its step.
GRIDS: dict[str, dict[str, list[float]]] = {
    "multi_similarity": {"margin": _TENTHS, "pos_scale": _EVEN, "neg_scale": _EVEN, "epsilon": _TENTHS},
    "soft_triple": {
        "margin": _TENTHS,
        "scale": _EVEN,
        "training.proxy_lr": [1e-5 * step for step in range(1, 11)],
        "gamma": [1 / (10 * step) for step in range(1, 11)],
        "tau": _TENTHS,
    },
    "proxy_anchor": {"margin": _TENTHS, "scale": _EVEN},
}


Spaces = dict[str, SearchSpace]
Configured = Callable[[str], list[tuple[SearchConfig, Spaces]]]


@pytest.fixture(scope="module")
def configured(trees: Trees) -> Configured:
    """Return a function that gives the searches of a recipe or of a campaign with their spaces; each is read once."""

    def read(name: str) -> list[tuple[SearchConfig, Spaces]]:
        configs = [recipe_on(trees, name)] if name in recipes() else varied_on(trees, name)
        return [(config, spaces_of(config)) for config in configs]

    return cache(read)


def runs(config: SearchConfig, spaces: Spaces, losses: Sequence[str]) -> Iterator[Run]:
    for loss, space in spaces.items():
        if loss in (losses or config.loss_names):
            yield Run(config=config, loss=loss, configuration=space.default)


@pytest.mark.parametrize(("paper", "where", "pattern", "losses", "settings"), PRINTED)
def test_trial_0_is_trained_as_the_paper_prints(
    paper: str, where: str, pattern: str, losses: Sequence[str], settings: dict[str, Any], configured: Configured
) -> None:
    names = matching(recipes(), pattern)
    assert names
    for name in names:
        found = [run for search in configured(name) for run in runs(*search, losses)]
        assert len(found) >= 1
        assert {run.loss for run in found} >= {loss for loss in losses if loss in read_search(Path(name))["losses"]}
        for run in found:
            assert {what: fact(run, what) for what in settings} == settings, f"{name}, {run.loss}: {paper}, {where}"


@pytest.mark.parametrize(("paper", "where", "pattern", "losses", "what", "values"), VARIED)
def test_campaigns_vary_what_the_paper_varies(
    paper: str, where: str, pattern: str, losses: Sequence[str], what: str, values: set[Any], configured: Configured
) -> None:
    names = matching(campaigns(), pattern)
    assert names
    for name in names:
        found = {fact(run, what) for search in configured(name) for run in runs(*search, losses)}
        assert found == values, f"{name}: {paper}, {where}"


SEARCHES = ("hyperparameter-search-cub200", "fixed-validation-cub200")


@pytest.mark.parametrize("campaign", SEARCHES)
@pytest.mark.parametrize("loss", GRIDS)
def test_the_search_goes_over_the_printed_grids(loss: str, campaign: str, configured: Configured) -> None:
    for config, spaces in configured(campaign):
        space = spaces[loss]
        assert space.searched.keys() == GRIDS[loss].keys()
        if config.search.sampler == "coordinate":
            for name, grid in GRIDS[loss].items():
                assert space.parameters[name].grid == pytest.approx(grid), name


TEN = (*(loss for loss in PAIRS), "proxy_nca", "arcface", "soft_triple", "proxy_anchor")


def test_all_ten_losses_are_searched_on_fixed_validation_classes(configured: Configured) -> None:
    """Thesis, section 7: each from its recipe's defaults over a grid that the trials cover, with Table 5's mining."""
    (recipe,) = configured("thesis-cub200-bninception")
    mined = {"triplet": "semi_hard", "lifted_structure": "hard", "margin": "distance_weighted"}
    for config, spaces in configured("fixed-validation-cub200"):
        assert sorted(config.loss_names) == sorted(TEN)
        assert (config.split.ratio, config.split.folds, config.search.pruner) == (0.9, None, "none")
        default = {run.loss: run.configuration for run in runs(*recipe, TEN)}
        for loss, space in spaces.items():
            assert {**default[loss], "training.proxy_lr": loss_row(loss).proxy_lr}.items() >= space.default.items(), (
                loss
            )
            assert loss not in mined or space.default["mining"] == mined[loss]
            assert "mining" not in space.searched
            assert space.searched.keys() - {"training.proxy_lr"}, "nothing of the loss is searched"
            if config.search.sampler == "coordinate":
                values = [len(space.parameters[name].grid or ()) for name in space.searched]
                assert all(values), "a range without steps"
                assert 1 + sum(count - 1 for count in values) <= config.search.trials


# The printed schedules.


def milestones(lr: float, after: Sequence[int], gamma: float, epochs: int) -> list[float]:
    """Return the rate of every epoch if it is multiplied by ``gamma`` after each epoch of ``after``."""
    return [lr * gamma ** sum(epoch > last for last in after) for epoch in range(1, epochs + 1)]


# Psomas, Table 3: learning rate, step size, gamma.
THESIS = {
    "cub200-resnet50": (1e-4, 5, 0.1), "cub200-bninception": (1e-4, 10, 0.1), "cub200-googlenet": (1e-4, 10, 0.1),
    "cars196-resnet50": (1e-4, 10, 0.1), "cars196-bninception": (1e-4, 20, 0.1), "cars196-googlenet": (1e-4, 20, 0.1),
    "sop-resnet50": (6e-4, 10, 0.25), "sop-bninception": (6e-4, 20, 0.25), "sop-googlenet": (6e-4, 20, 0.25),
}  # fmt: skip

# The rate of each epoch. The thesis's text (3.4) has 100 epochs and no warm-up. In MPA's first epoch, Proxy-Anchor's
# warm-up, the network does not learn; the rest of 4.2's epochs do. The topk recipes state why their rate is another.
RATES = {
    **{
        f"thesis-{name}": milestones(lr, range(step, 100, step), gamma, 100)
        for name, (lr, step, gamma) in THESIS.items()
    },
    "mpa-cub200": [0.0, *milestones(1e-4, range(20, 60, 20), 0.5, 60)[1:]],
    "mpa-cars196": [0.0, *milestones(1e-4, range(20, 60, 20), 0.5, 60)[1:]],
    "mpa-sop": [0.0, *milestones(1e-4, range(20, 100, 20), 0.5, 100)[1:]],
    "pnp-sop": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "pnp-vehicleid": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "pnp-inaturalist": milestones(1e-5, (120, 220, 250, 280), 0.3, 400),
    "topk-cub200": milestones(1e-4, (8, 20, 70), 0.1, 80),
    "topk-cars196": milestones(1e-4, (10, 30, 70), 0.1, 80),
    "topk-sop": milestones(1e-4, (15, 100, 200), 0.1, 120),
}


@pytest.mark.parametrize("recipe", RATES)
def test_the_network_learns_by_the_printed_schedule(recipe: str, configured: Configured) -> None:
    ((config, _),) = configured(recipe)
    training = config.training_of(config.loss_names[0])
    rates = [
        training.schedule.rate(training.lr, epoch=epoch, step=0, steps=1, epochs=training.epochs)
        if epoch > training.warmup_epochs
        else 0.0
        for epoch in range(1, training.epochs + 1)
    ]
    assert rates == pytest.approx(RATES[recipe])


# Every recipe is a search file that runs.

PAPERS = [name for name in recipes() if name != "quickstart"]

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


def with_settings(recipe: str, *settings: str) -> SearchConfig:
    return parse_config(apply_settings(read_yaml(recipes()[recipe]), settings))


def at_tree(trees: Trees, recipe: str) -> tuple[str, ...]:
    """Return the settings with which a recipe reads its data set's tree."""
    return (f"dataset.root={trees(recipe.split('-')[1])}", "dataset.subset=true")


def test_every_schedule_that_is_printed_has_its_recipe() -> None:
    assert {*PAPERS} == RATES.keys()


@pytest.mark.parametrize("recipe", PAPERS)
def test_a_recipe_names_itself_and_settings_and_its_losses_build(recipe: str, trees: Trees) -> None:
    config = with_settings(recipe, *at_tree(trees, recipe))
    assert config.name == recipe
    assert config.dataset.name == recipe.split("-")[1]
    for loss, space in spaces_of(config).items():
        LOSSES[loss](num_classes=3, embedding_dim=4, **space.default.loss)
    what, command, *comments = recipes()[recipe].read_text().splitlines()
    assert what.startswith("# ")
    assert command == f"# holdout run {recipe} --set dataset.root=DIR"
    lines = [found for line in comments if (found := re.findall(r"--set ([\w.]+=[\w.-]+)", line))]
    for settings in lines:
        own = [setting for setting in settings if not setting.startswith("dataset.root=")]
        if "dataset.name=folder" not in own:
            with_settings(recipe, *at_tree(trees, recipe), *own)


@pytest.mark.parametrize("recipe", ["mpa-cub200", "pnp-sop", "topk-sop", "thesis-sop-resnet50"])
def test_a_recipe_of_each_paper_trains(recipe: str, trees: Trees, tmp_path: Path) -> None:
    """With the recipe's metrics."""
    made = make_plan(with_settings(recipe, *at_tree(trees, recipe), *SMALL), tmp_path)
    loss = made.config.loss_names[0]
    trial = made_trial(made.spaces[loss], made.spaces[loss].default)
    (record,) = train(replace(training_of(made, loss, Stage.SEARCH, trial), directory=str(tmp_path / "trial")))
    assert tuple(record["metrics"]) == made.metrics
