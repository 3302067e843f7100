"""Several searches side by side, with real trainings in this process: nothing of the test before all is frozen, one
opening for the lot, and what survives a death at any moment."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from rich.console import Console

from search.driver.pipeline import stage_by_stage
from search.driver.sealed import score_test
from search.driver.stages import FailedLosses, NothingToSelect
from search.plan.search import OpenedSearch
from search.report.summary import summarise
from search.selection.ledger import Ledger
from search.selection.retrieval_file import Scoring
from search.selection.scoring import score
from search.stages import Stage
from search.study.trial_queue import RunningTrial, TrialQueue
from trainables.training.train import Training

ALL = (Stage.SEARCH, Stage.SELECT, Stage.TEST)
QUIET = Console(quiet=True)
Opened = Callable[..., OpenedSearch]
TINY: dict[str, Any] = {
    "training": {"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
    "losses": ["pnp"],
    "search": {"trials": 1},
    "selection": {"finalists": 1, "seeds": 1},
    "final": {"seeds": 1},
    "metrics": {"test": ["recall_at_1"]},
}


@pytest.fixture
def searches(opened: Opened) -> list[OpenedSearch]:
    return [opened(**TINY, name="lot-a"), opened(**TINY, name="lot-b", split={"ratio": 0.6})]


def train(queue: TrialQueue, job: RunningTrial) -> None:
    training = Training(job.spec, torch.device("cpu"))
    while not training.finished:
        training.run_epoch()
    queue.on_trial_result(job, {"records": training.records, "finished": True})


def trained(searches: Sequence[OpenedSearch]) -> Iterator[RunningTrial]:
    """Train everything; yield each trial before its training."""
    queue = TrialQueue(stage_by_stage(searches, ALL, QUIET, None))
    while job := queue.next_trial():
        yield job
        train(queue, job)


def here(tasks: Sequence[Scoring]) -> list[Any]:
    return [score(task) for task in tasks]


def test_all_is_frozen_before_one_opening_of_the_lot_which_outlives_a_death(
    searches: list[OpenedSearch], opened: Opened
) -> None:
    """Other test classes are another opening."""
    other = opened(**TINY, name="lot-c", dataset={"name": "glyphs", "num_classes": 12, "images_per_class": 6})
    searches.append(other)
    jobs = []
    for job in trained(searches):
        assert job.stage is not Stage.TEST or all(search.is_done(Stage.SELECT) for search in searches)
        jobs.append(job)
    assert [job.stage for job in jobs] == [Stage.SEARCH] * 3 + [Stage.SELECT] * 6 + [Stage.TEST] * 3
    assert [job.study.name.split("/")[0] for job in jobs] == ["lot-a", "lot-b", "lot-c"] * 4
    asked: list[str] = []

    def dies_at_the_second(tasks: Sequence[Scoring]) -> list[Any]:
        asked.extend(task.checkpoint for task in tasks)
        if any("lot-b" in checkpoint for checkpoint in asked):
            raise KeyboardInterrupt
        return here(tasks)

    with pytest.raises(KeyboardInterrupt):
        score_test(searches, QUIET, opener="lot", reason=None, score_all=dies_at_the_second)
    assert [search.is_done(Stage.TEST) for search in searches] == [True, False, False]
    score_test(searches[1:], QUIET, opener="lot", reason=None, score_all=here)
    openings = Ledger(other.plan.folder.openings).openings()
    assert [(opening.search, set(opening.selections)) for opening in openings] == [
        ("lot", {"lot-a", "lot-b"}), ("lot", {"lot-c"}),
    ]  # fmt: skip
    lines = other.plan.folder.openings.read_text().splitlines()
    assert len(lines) == 4 + 3, "an opening, its images, and the scores of each search"
    for search in searches:
        summary = summarise(search)
        assert summary.test_opened == 1
        assert summary.losses["pnp"].test
        assert summary.losses["pnp"].test["recall_at_1"].values


def test_a_search_without_a_choice_does_not_hold_up_the_others(searches: list[OpenedSearch]) -> None:
    failing = searches[0].config.name

    def run(lot: Sequence[OpenedSearch], *, allow_failed: bool = True) -> None:
        queue = TrialQueue(stage_by_stage(lot, ALL, QUIET, None, allow_failed=allow_failed))
        while job := queue.next_trial():
            if job.study.name.startswith(failing):
                queue.on_trial_result(job, {"failure": {"cause": "CODE_ERROR", "reason": "x"}})
            else:
                train(queue, job)

    with pytest.raises(NothingToSelect, match="No trial of pnp could be confirmed"):
        run(searches[:1])
    with pytest.raises(FailedLosses, match="Every trial of lot-a/pnp failed"):
        run(searches, allow_failed=False)
    run(searches)
    assert [search.is_done(Stage.SELECT) for search in searches] == [False, True]
