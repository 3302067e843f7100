"""Confirmations on several splits of the training classes, with simulated trainings."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from optuna.trial import TrialState
from support.driving import drive, only, train

from search.driver.stages import confirm_stages, final_stage, freeze
from search.plan.search import OpenedSearch
from search.report.summary import write_summary
from search.selection.selection import Selection
from search.stages import Stage
from search.study.queued import RunningTrial
from search.study.trial_queue import TrialQueue
from trainables.data.split import make_split

Opened = Callable[..., OpenedSearch]
QUALITY = {0: 0.1, 1: 0.62, 2: 0.6, 3: 0.58}
"""The values of the search's trials, on its own split."""
HARDER = (0.0, -0.3, 0.05)
"""The difference that each split's classes make."""


def value_of(search: OpenedSearch, job: RunningTrial) -> float:
    number = job.study.trial(job.number).user_attrs.get("source_trial", job.number)
    splits = [search.plan.split, *search.plan.further_splits]
    (split,) = [n for n, entry in enumerate(splits) if entry.validation == job.spec.validation_classes]
    turns = 0.1 if (number, split) == (2, 1) else 0  # on the second split's classes another one is better
    return QUALITY[number] + HARDER[split] + turns


@pytest.fixture
def search(opened: Opened) -> OpenedSearch:
    made = opened(
        training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        losses=["pnp"],
        search={"trials": 4, "pruner": "none", "sampler": "random"},
        selection={"finalists": 3, "seeds": 3, "splits": 3},
        final={"seeds": 2},
    )
    drive(made, lambda job, epoch: value_of(made, job))
    return made


def confirm(search: OpenedSearch) -> list[RunningTrial]:
    jobs = []
    for stage in confirm_stages([search]):
        queue = TrialQueue(only(stage))
        while job := queue.next_trial():
            jobs.append(job)
            train(queue, job, lambda job, epoch: value_of(search, job))
    return jobs


def test_every_finalist_validates_on_the_same_splits_in_turn(search: OpenedSearch) -> None:
    plan = search.plan
    dataset = plan.config.dataset.source
    expected = [
        make_split(dataset.identity(), list(dataset.classes()), None, ratio=0.9, seed=seed).validation
        for seed in range(3)
    ]
    assert len(set(expected)) == 3
    jobs = confirm(search)
    by_number: dict[int, list[Any]] = {}
    for job in jobs:
        attributes = job.study.trial(job.number).user_attrs
        by_number.setdefault(attributes["source_trial"], []).append((job.spec.validation_classes, job.spec.seed))
        assert {*job.spec.train_classes, *job.spec.validation_classes} == {*plan.split.train, *plan.split.validation}
        assert not {*job.spec.train_classes} & {*job.spec.validation_classes}
        assert not {*job.spec.train_classes, *job.spec.validation_classes} & {*plan.split.test}
    runs = sorted(by_number.values(), key=len)
    assert [len(of_one) for of_one in runs] == [1, 1, 5, 5], "halving"
    assert runs[0] == runs[1] == runs[2][:1]
    assert runs[2] == runs[3]
    assert [validation for validation, _ in runs[2]] == [expected[index % 3] for index in range(5)]
    assert len({seed for _, seed in runs[2]}) == 5


def test_what_a_split_adds_to_all_is_no_part_of_the_choice(search: OpenedSearch) -> None:
    """Two were also trained on a hard split; the third is compared with their values without it."""
    confirm(search)
    selection = freeze(search)
    assert selection == Selection.load(search.plan.folder.selection)
    chosen = selection.chosen["pnp"]
    assert chosen.splits == (0, 1, 2, 0, 1)
    assert chosen.number == 2
    effect = (-0.3 - 0.2) / 2  # by hand, of the two that were trained on the second split; on the third they differ not
    assert chosen.values == pytest.approx([0.6, 0.6 - 0.2 - effect, 0.6, 0.6, 0.6 - 0.2 - effect], abs=1e-9)
    assert "3 splits of the training classes" in selection.rule
    summary = write_summary(search)
    found = summary.losses["pnp"].other_splits
    assert found is not None
    assert (found.splits, found.best) == (3, 1)
    assert "on 1 of 3 splits of the training classes the chosen configuration is also the best" in found.sentence
    stored = json.loads(search.plan.folder.summary.read_text())
    assert stored["losses"]["pnp"]["other_splits"] == {"splits": 3, "best": 1}


def test_the_trainings_for_the_test_are_on_the_search_s_own_split(search: OpenedSearch) -> None:
    confirm(search)
    jobs = list(iter(TrialQueue(only(final_stage(search, freeze(search)))).next_trial, None))
    assert jobs
    assert {job.spec.validation_classes for job in jobs} == {search.plan.split.validation}


def test_one_split_is_as_it_was(opened: Opened) -> None:
    search = opened(losses=["pnp"], search={"trials": 1})
    assert search.plan.further_splits == ()
    drive(search)
    for stage in confirm_stages([search]):
        queue = TrialQueue(only(stage))
        while job := queue.next_trial():
            assert job.spec.validation_classes == search.plan.split.validation
            train(queue, job, lambda job, epoch: 0.5)
    assert all(trial.state == TrialState.COMPLETE for trial in search.study("pnp", Stage.SELECT).trials())
    freeze(search)
    assert write_summary(search).losses["pnp"].other_splits is None
