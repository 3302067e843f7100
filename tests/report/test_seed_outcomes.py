"""Seeds that failed are told apart from seeds that are missing, wherever an interval rests on fewer than asked for."""

import json
from collections.abc import Callable, Sequence

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from support.driving import drive, only, record, train

from search.driver.stages import confirm_stage, final_stage, freeze
from search.plan.search import OpenedSearch
from search.report.comparison import compare
from search.report.comparison_tables import headline_tables, text_tables
from search.report.rows import SeedOutcomes
from search.report.sections.answer import answer
from search.report.summary import summarise, write_summary
from search.study.trial_queue import TrialQueue


def trial(seed: int, state: TrialState, cause: str | None = None) -> FrozenTrial:
    attributes = {"seed": seed, **({"failure": {"cause": cause, "reason": "so"}} if cause else {})}
    return create_trial(state=state, value=0.5 if state == TrialState.COMPLETE else None, user_attrs=attributes)


COMPLETE, FAIL, WAITING, RUNNING = TrialState.COMPLETE, TrialState.FAIL, TrialState.WAITING, TrialState.RUNNING


@pytest.mark.parametrize(
    ("trials", "wanted", "sentence"),
    [
        ([trial(1, COMPLETE), trial(2, COMPLETE)], 2, None),
        ([trial(1, COMPLETE), trial(2, FAIL, "DIVERGED")], 2, "1 of 2 seeds; 1 failed (DIVERGED)"),
        ([trial(1, COMPLETE), trial(2, WAITING)], 2, "1 of 2 seeds; 1 missing"),
        ([trial(1, COMPLETE)], 3, "1 of 3 seeds; 2 missing"),
        (
            [trial(1, FAIL, "LOST"), trial(2, FAIL, "DIVERGED"), trial(3, FAIL, "DIVERGED"), trial(4, RUNNING)],
            5,
            "0 of 5 seeds; 1 failed (LOST), 2 failed (DIVERGED), 2 missing",
        ),
        # A seed with folds is complete when all of them are, and failed when one is.
        ([trial(1, COMPLETE), trial(1, FAIL, "CODE_ERROR")], 1, "0 of 1 seed; 1 failed (CODE_ERROR)"),
        ([trial(1, COMPLETE), trial(1, RUNNING), trial(2, COMPLETE)], 2, "1 of 2 seeds; 1 missing"),
    ],
)
def test_what_became_of_seeds(trials: Sequence[FrozenTrial], wanted: int, sentence: str | None) -> None:
    found = SeedOutcomes.of(trials, wanted)
    assert SeedOutcomes.of([], wanted) is None, "a stage that has not begun"
    assert found is not None
    assert found.sentence == sentence
    assert found.complete + sum(found.failed.values()) + found.missing == found.wanted


def test_tables_and_summary_and_report_say_which(opened: Callable[..., OpenedSearch]) -> None:
    """Of the chosen configuration one final seed diverges and one is never trained; the default's are all there."""
    search = opened(search={"trials": 3, "pruner": "none"}, final={"seeds": 3}, losses=["pnp"])
    drive(search, lambda job, epoch: job.number / 10 + epoch / 100)
    queue = TrialQueue(iter([confirm_stage(search)]))
    while job := queue.next_trial():
        train(queue, job, lambda job, epoch: job.study.trial(job.number).user_attrs["source_trial"] / 10)
    selection = freeze(search)
    queue = TrialQueue(only(final_stage(search, selection)))
    tuned = 0
    for job in list(iter(queue.next_trial, None)):
        if job.study.trial(job.number).user_attrs["source_trial"] == 0:
            train(queue, job, lambda job, epoch: 0.1)
        elif (tuned := tuned + 1) == 1:
            train(queue, job, lambda job, epoch: 0.3)
        elif tuned == 2:
            queue.on_trial_result(job, {"records": [record(1, 0.2)], "finished": False})
            queue.on_trial_result(job, {"failure": {"cause": "DIVERGED", "reason": "The training loss became nan."}})
    summary = write_summary(search)
    entry = summary.losses["pnp"]
    assert entry.incomplete_seeds == ["tuned final: 1 of 3 seeds; 1 failed (DIVERGED), 1 missing"]
    stored = json.loads(search.plan.folder.summary.read_text())["losses"]["pnp"]
    assert stored["final_seeds"] == {"wanted": 3, "complete": 1, "failed": {"DIVERGED": 1}, "missing": 1}
    assert stored["default"]["final_seeds"]["complete"] == 3
    comparison = compare([search.plan.folder], [summarise(search)])
    told = "1 of 3 seeds; 1 failed (DIVERGED), 1 missing"
    assert any(told in note for table in headline_tables(comparison) for note in table.notes)
    assert any(told in note for table in text_tables(comparison) for note in table.notes)
    assert any(told in sentence for sentence in answer(comparison, [search.plan.folder]).remarks)
