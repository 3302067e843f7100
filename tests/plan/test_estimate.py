"""The estimated duration of a search, against sums by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from search.config.search_config import parse_config
from search.driver.doctor import START_S, expected_seconds, expected_works, images_of, measured_trainings
from search.plan.make_plan import make_plan
from search.plan.plan import Plan
from search.stages import Stage
from trainables.training.cost import Cost


@pytest.fixture
def planned(search_file: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., Plan]:
    return lambda **changes: make_plan(parse_config(search_file(**changes)), tmp_path / "runs")


def cost(epoch: float) -> Cost:
    return Cost(step=(epoch - 0.5) / 3, steps=3, validation=0.5, memory=10**9, device_memory=None)


def test_all_stages_are_shared_out_to_the_slots(planned: Callable[..., Plan]) -> None:
    """A loss with 3 trials, 2 finalists with 2 seeds on halves, 2 configurations with 2 seeds, of 3 epochs each."""
    plan = planned(search={"trials": 3, "pruner": "none"})
    works = expected_works(plan)
    assert {(work.loss, work.stage): work.left() for work in works if work.budget.most} == {
        (loss, stage): epochs
        for loss in ("proxy_anchor", "pnp")
        for stage, epochs in {Stage.SEARCH: 9, Stage.SELECT: 12, Stage.TEST: 12}.items()
    }
    costs = {"proxy_anchor": cost(2.0), "pnp": cost(4.0)}
    by_hand = ((9 * 2 + 9 * 4) + (12 * 2 + 12 * 4) + (12 * 2 + 12 * 4)) / 2
    assert expected_seconds(plan, works, costs, 2) == pytest.approx(START_S + by_hand)
    # with a slot for each trial a stage takes as long as its longest training, of half of the classes in one of them
    assert expected_seconds(plan, works, costs, 100) == pytest.approx(START_S + (3 + 1.5 + 3) * 4)


def test_pruning_and_folds_count(planned: Callable[..., Plan]) -> None:
    search = {"trials": 40, "pruner": "asha"}
    (searched, *_) = expected_works(planned(training={"epochs": 8, "batch_size": 20, "image_size": 16}, search=search))
    assert 40 * 8 * 0.4 < searched.left() < 40 * 8 * 0.6
    folds = planned(search={"trials": 3, "pruner": "none"}, split={"folds": 4})
    of_folds = {work.stage: work.left() for work in expected_works(folds) if work.loss == "pnp" and work.budget.most}
    assert of_folds == {Stage.SEARCH: 3 * 4 * 3, Stage.SELECT: 4 * 2 * 3 / 2, Stage.TEST: 4 * 4 * 3}
    confirmed = planned(search={"trials": 3}, split={"folds": 4}, selection={"finalists": 1, "on": "split"})
    (work,) = (work for work in expected_works(confirmed) if (work.loss, work.stage) == ("pnp", Stage.SELECT))
    assert work.left() == 4 * 4 * 3
    assert (images_of(folds).train, images_of(folds).validation) == ((10,) * 6, (10,) * 2)


def test_the_trainings_that_are_measured_are_those_of_the_search(planned: Callable[..., Plan], tmp_path: Path) -> None:
    plan = planned(metrics={"gallery": "training_half"})
    assert (images_of(plan).train, images_of(plan).validation, images_of(plan).gallery) == ((10,) * 6, (10,) * 2, 30)
    plan.images.make()
    trainings = measured_trainings(plan, str(tmp_path))
    assert list(trainings) == ["proxy_anchor", "pnp"]
    for spec in trainings.values():
        assert (spec.images, spec.train_classes) == (plan.images, plan.split.train), "which are decoded"
        assert spec.training == plan.config.training
        assert not spec.validation_classes
