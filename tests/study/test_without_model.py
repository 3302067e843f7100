"""Notices before a search: trials without a model, compared with what Optuna's samplers do; a nearly perfect score."""

from dataclasses import asdict

import pytest
from support.driving import Opened, drive, only, train_side_by_side

from search.driver.finish import write_summary
from search.driver.notices import at_ceiling, first_proposals, without_model
from search.driver.stages import search_stage
from search.selection import Baselines
from search.stages import Stage
from search.study.trial_queue import TrialQueue
from trainables.common.files import write_json


@pytest.mark.parametrize(
    ("sampler", "attribute", "trials", "slots"),
    [
        ("tpe", "tpe:relative_params:0", 9, 4),
        ("tpe", "tpe:relative_params:0", 3, 1),
        ("gp", "gp:relative_params:0", 5, 1),
    ],
)
def test_as_many_trials_are_without_model_as_is_said(
    opened: Opened, sampler: str, attribute: str, trials: int, slots: int
) -> None:
    """Optuna stores a model's proposal in the trial, and nothing for a random one."""
    search = opened(
        search={"trials": trials, "sampler": sampler, "pruner": "none"},
        losses=["proxy_anchor"],
        training={"epochs": 1, "batch_size": 20},
    )
    train_side_by_side(TrialQueue(only(search_stage(search))), slots, lambda running, epoch: 1 / (1 + running.number))
    drawn = sum(attribute not in trial.system_attrs for trial in search.study("proxy_anchor", Stage.SEARCH).trials())
    row = search.plan.budget("proxy_anchor").sampler
    assert row is not None
    assert row.trials_before_model(slots) == drawn
    told = without_model(sampler, row, slots)
    assert told
    assert (f"the first {drawn} of {trials} trials" if drawn < trials else f"all {trials} trials") in told


@pytest.mark.parametrize(
    ("slots", "losses", "says"),
    [
        (
            16,
            ["pnp"],
            "all 16 trials are drawn at random: the sampler learns from 4 finished trials of a loss",
        ),
        (13, ["pnp"], "set search.max_concurrent to 12 at most, or ask for more trials."),
        (32, ["pnp", "mpa"], "set search.max_concurrent to 24 at most"),
        (16, ["pnp", "mpa"], "the first 11 of 16 trials"),
    ],
)
def test_it_says_how_trials_are_learnt_from(opened: Opened, slots: int, losses: list[str], says: str) -> None:
    search = opened(search={"trials": 16}, losses=losses)
    sampler = search.plan.budget("pnp").sampler
    assert sampler is not None
    assert says in str(without_model("tpe", sampler, slots, len(losses)))


@pytest.mark.parametrize("name", ["random", "qmc"])
def test_nothing_is_said_of_samplers_that_learn_nothing(opened: Opened, name: str) -> None:
    sampler = opened(search={"trials": 4, "sampler": name}).plan.budget("pnp").sampler
    assert sampler is not None
    assert without_model(name, sampler, 64) is None


def test_it_is_said_before_the_start_and_not_of_a_search_that_goes_on(opened: Opened) -> None:
    search = opened(search={"trials": 5, "pruner": "none"}, training={"epochs": 1, "batch_size": 20})
    (notice,) = set(first_proposals([search], slots=4))  # two for each of its two losses
    assert notice.startswith("Sampling (tpe): all 5 trials are drawn at random")
    assert "set search.max_concurrent to 2 at most" in notice
    drive(search)
    assert not list(first_proposals([search], slots=4))


def test_a_space_of_one_configuration_is_told_and_its_best_seed_is_not_tuned(
    opened: Opened,
) -> None:
    pinned = {"proxy_anchor": {"margin": 0.1, "scale": 32}}
    search = opened(losses=["proxy_anchor"], space=pinned, search={"trials": 3, "pruner": "none"}, stages=["search"])
    (notice,) = first_proposals([search], slots=1)
    assert notice == (
        "the space of proxy_anchor is one configuration, so its 3 trials differ in their seeds only; set search.trials "
        "to 1, or search a parameter."
    )
    drive(search, lambda job, epoch: job.number / 10)
    entry = write_summary(search).losses["proxy_anchor"]
    assert entry.tuned.name == "default leads so far"
    assert (entry.tuned.search_value, entry.default.search_value) == (0, 0)
    one = opened(name="one", losses=["proxy_anchor"], space=pinned, search={"trials": 1})
    assert not [*first_proposals([one], slots=1)]


@pytest.mark.parametrize(
    ("untrained", "whitened", "best"), [(0.97, 0.93, "the untrained network"), (0.5, 0.9, "the whitened network")]
)
def test_a_nearly_perfect_validation_is_told(opened: Opened, untrained: float, whitened: float, best: str) -> None:
    search = opened(losses=["pnp"])
    assert not list(at_ceiling([search])), "without pretrained weights there is nothing to score"
    values = {"untrained": {"map_at_r": untrained}, "whitened": {"map_at_r": whitened}}
    found = Baselines(network="", loaded=None, dimensions=8, validation=values, classes=values, whitening_sha256="")
    write_json(search.folder.baselines, asdict(found))
    (sentence,) = at_ceiling([search])
    assert sentence.startswith(
        f"The map_at_r of {best} is already {100 * max(untrained, whitened):.2f} on the 2 validation classes, so "
    )
    found = Baselines(**{**asdict(found), "validation": {"untrained": {"map_at_r": 0.89}, "whitened": {}}})
    write_json(search.folder.baselines, asdict(found))
    assert not list(at_ceiling([search]))
