"""A loss may have training settings of its own, and search training settings by itself."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.driving import made_trial
from support.refusals import sentences_of

from search.config.parts import SHARED
from search.config.recipes import read_search
from search.config.search_config import parse_config, settled_digest, settled_entries
from search.plan.make_plan import make_plan
from search.plan.plan import Plan, training_of
from search.stages import Stage
from trainables.spec import TrialSpec
from trainables.training.config import Schedule, TrainingConfig

SearchFile = Callable[..., dict[str, Any]]
LOSSES = ["mpa", "pnp", "multi_similarity"]
OWN = {"mpa": {"sampler": "random", "proxy_lr": 6e-2, "schedule": {"step": 2}}, "pnp": {"images_per_class": 4}}


@pytest.fixture
def plan(search_file: SearchFile, tmp_path: Path) -> Callable[..., Plan]:
    return lambda **changes: make_plan(parse_config(search_file(losses=LOSSES, **changes)), tmp_path / "runs")


def specs(made: Plan, params: Mapping[str, Any] | None = None) -> dict[str, TrialSpec]:
    trials = {loss: made_trial(space, {**space.default, **(params or {})}) for loss, space in made.spaces.items()}
    return {loss: training_of(made, loss, Stage.SEARCH, trial) for loss, trial in trials.items()}


def test_each_loss_is_trained_with_its_own_settings_over_the_shared_ones(plan: Callable[..., Plan]) -> None:
    assert {*SHARED} < {field.name for field in fields(TrainingConfig)}
    made = plan(training_by_loss=OWN)
    shared = made.config.training
    found = {loss: spec.training for loss, spec in specs(made).items()}
    schedule = Schedule(step=2, gamma=shared.schedule.gamma)
    assert found["mpa"] == replace(shared, sampler="random", proxy_lr=6e-2, schedule=schedule)
    assert found["pnp"] == replace(shared, images_per_class=4)
    assert found["multi_similarity"] == shared


def test_what_a_trial_proposes_stands_over_a_loss_s_own_settings(plan: Callable[..., Plan]) -> None:
    made = plan(training_by_loss={"mpa": {"lr": 2e-3}}, space={"training": {"lr": [2e-3, 5e-3]}})
    assert made.spaces["mpa"].default["training.lr"] == 2e-3
    assert {spec.training.lr for spec in specs(made, {"training.lr": 5e-3}).values()} == {5e-3}


def test_they_are_frozen_with_the_search_and_said_where_its_settings_are(search_file: SearchFile) -> None:
    plain, own = (parse_config(search_file(losses=LOSSES, **changes)) for changes in ({}, {"training_by_loss": OWN}))
    assert settled_digest(plain) != settled_digest(own)
    assert settled_entries(own)["training_by_loss.mpa.sampler"] == "random"
    of_mpa = settled_entries(own.of_loss("mpa"))
    assert of_mpa["training.sampler"] == "random"
    assert of_mpa["training.proxy_lr"] == 6e-2
    assert not any(name.startswith("training_by_loss") for name in of_mpa)
    assert settled_entries(own.of_loss("multi_similarity")) == settled_entries(plain)


def test_a_training_that_is_wrong_itself_is_not_blamed_on_a_loss(plan: Callable[..., Plan]) -> None:
    assert sentences_of(lambda: plan(training={"epochs": "many"}, training_by_loss={"mpa": {"warmup_epochs": 99}})) == (
        "training.epochs: must be a whole number; it is 'many'.",
    )


def test_a_loss_s_space_may_hold_settings_of_its_training(plan: Callable[..., Plan]) -> None:
    wish = {"low": 1e-5, "high": 1e-4, "step": 1e-5}
    made = plan(space={"mpa": {"scale": 8, "training": {"proxy_lr": wish}}, "training": {"lr": [1e-3, 1e-2]}})
    assert list(made.spaces["mpa"].searched)[-2:] == ["training.lr", "training.proxy_lr"]
    assert made.spaces["mpa"].parameters["training.proxy_lr"].grid == tuple(round(n * 1e-5, 12) for n in range(1, 11))
    assert "training.proxy_lr" not in made.spaces["multi_similarity"].parameters


def test_losses_that_a_setting_leaves_out_take_their_own_settings_with_them(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text(yaml.safe_dump({"losses": LOSSES, "training_by_loss": OWN, "space": {"pnp": {"alpha": 2}}}))
    fewer = read_search(file, ["losses=[mpa]", "space.mpaa.tau=0.1"])
    assert fewer["training_by_loss"] == {"mpa": OWN["mpa"]}
    assert fewer["space"] == {"mpaa": {"tau": 0.1}}, "a mistake stays one"
    assert read_search(file)["training_by_loss"] == OWN
