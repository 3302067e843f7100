"""The noise stage without a cluster: its trainings, and what is said about them."""

import statistics
from collections.abc import Callable
from typing import Any

import pytest
from scipy.stats import chi2
from support.driving import only, record, train

from search.driver.stages import noise_stage
from search.plan.plan import training_of
from search.plan.search import OpenedSearch, open_search
from search.report.formats import noise_text
from search.report.statistics import minimum_detectable_difference
from search.report.summary import summarise
from search.stages import Stage
from search.study.queued import RunningTrial
from search.study.trial_queue import TrialQueue

Opened = Callable[..., OpenedSearch]

SECTION = {"seeds": 4, "splits": 2}


def drive(search: OpenedSearch, only_some: int = 100) -> list[RunningTrial]:
    queue = TrialQueue(only(noise_stage(search)))
    jobs: list[RunningTrial] = []
    while len(jobs) < only_some and (job := queue.next_trial()):
        jobs.append(job)
        train(queue, job, lambda job, epoch: (1 + job.number) ** 2 / 100)
    return jobs


def test_one_configuration_with_several_seeds_and_on_other_splits(opened: Opened) -> None:
    search = opened(noise=SECTION, losses=["pnp"])
    assert not search.is_done(Stage.NOISE)
    drive(search, only_some=3)
    again = open_search(search.plan)  # a driver died in between
    assert not again.is_done(Stage.NOISE)
    drive(again)
    assert again.is_done(Stage.NOISE)
    assert not drive(again)
    trials = again.study("pnp", Stage.NOISE).trials()
    assert len(trials) == 6
    specs = [training_of(again.plan, "pnp", Stage.NOISE, trial) for trial in trials]
    assert all(trial.params == again.plan.spaces["pnp"].default for trial in trials)
    assert len({spec.seed for spec in specs[:4]}) == 4
    assert {spec.seed for spec in specs[4:]} == {specs[0].seed}
    assert {spec.validation_classes for spec in specs[:4]} == {again.plan.split.validation}
    assert len({spec.validation_classes for spec in specs}) == 3
    for spec in specs:
        assert {*spec.train_classes, *spec.validation_classes} == {*again.plan.images.class_names}
    assert not again.study("pnp", Stage.SEARCH).trials()


def test_the_deviations_and_what_a_budget_can_tell(opened: Opened) -> None:
    search = opened(noise=SECTION, losses=["pnp"], final={"seeds": 5})
    assert summarise(search).noise is None
    drive(search)
    noise = summarise(search).noise
    assert noise is not None
    values = (0.01, 0.04, 0.09, 0.16)
    assert noise.values == values
    assert noise.std == pytest.approx(statistics.stdev(values))
    assert noise.split_values == (0.01, 0.25, 0.36)
    assert noise.split_std == pytest.approx(statistics.stdev([0.01, 0.25, 0.36]))
    expected = minimum_detectable_difference(noise.std or 0.0, seeds=5, rows=2, pairs=1)
    assert expected is not None
    found = noise.detectable["map_at_r"]
    assert (found.seeds, found.pairs, found.difference) == (5, 1, expected)
    said = noise_text(noise, "map_at_r")
    for part in (
        "0.0750, deviation 0.0656 over 4 seeds",
        "Over 3 class splits",
        "between the rows of 1 pair",
        "does not",
    ):
        assert part in said, said


def test_each_metric_has_its_own_noise_at_the_best_epoch(opened: Opened) -> None:
    search = opened(noise={"seeds": 5}, losses=["pnp"])
    queue = TrialQueue(only(noise_stage(search)))
    recalls = [0.5, 0.7, 0.6, 0.9, 0.4]
    while job := queue.next_trial():
        records = [
            {**record(1, 0.3), "metrics": {"map_at_r": 0.3 + job.number / 100, "recall_at_1": recalls[job.number]}},
            {**record(2, 0.1), "metrics": {"map_at_r": 0.1, "recall_at_1": 0.99}},
        ]
        queue.on_trial_result(job, {"records": records, "finished": True})
    noise = summarise(search).noise
    assert noise is not None
    assert [*noise.detectable] == ["map_at_r", "recall_at_1"]
    said = noise_text(noise, "map_at_r")
    for metric, values in (("map_at_r", [0.3, 0.31, 0.32, 0.33, 0.34]), ("recall_at_1", recalls)):
        found, std = noise.detectable[metric], statistics.stdev(values)
        expected = minimum_detectable_difference(std, seeds=2, rows=2, pairs=1)
        assert found.difference == pytest.approx(expected)
        assert found.ci95 is not None
        ends = [expected * (4 / quantile) ** 0.5 for quantile in chi2(4).ppf([0.975, 0.025])]
        assert found.ci95 == pytest.approx(ends)
        assert f"of {metric} from {expected:.4f} [{ends[0]:.4f}, {ends[1]:.4f}]" in said


@pytest.mark.parametrize("seeds", [2, 3])
def test_few_seeds_tell_no_number(opened: Opened, seeds: int) -> None:
    search = opened(noise={"seeds": seeds}, losses=["pnp"])
    drive(search)
    noise = summarise(search).noise
    assert noise is not None
    assert all(found.difference is None for found in noise.detectable.values())
    said = noise_text(noise, "map_at_r")
    assert f"What final.seeds = 2 can detect is not known from {seeds} seeds; measure at least 4 (noise.seeds)." in said


@pytest.mark.parametrize(
    ("configuration", "expected"),
    [
        ({"variant": "Ib", "bound": 7.0}, {"variant": "Ib", "bound": 7.0}),
        ({"variant": "Ds"}, {"variant": "Ds"}),
    ],
)
def test_a_configuration_of_one_s_own(opened: Opened, configuration: dict[str, Any], expected: dict[str, Any]) -> None:
    """With the parameters that exist beside it, and none that does not."""
    search = opened(noise={"loss": "pnp", "configuration": configuration, "seeds": 2})
    drive(search)
    (first, second) = search.study("pnp", Stage.NOISE).trials()
    assert first.params == second.params
    assert first.params.items() >= expected.items()
    assert "alpha" not in first.params
    noise = summarise(search).noise
    assert noise is not None
    assert noise.loss == "pnp"
