"""Campaigns that are run with real trainings in this process, and their results.

Nothing of the test is opened before all is frozen; one opening is for the lot.
"""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from rich.console import Console
from support.bare_networks import BACKBONE, save_convnet
from support.commands import holdout_here, summary
from support.finished_search import campaign_here, in_turn
from support.kinds import FinishedCampaign
from support.serving import asked
from support.small_search import GLYPHS, SHORTEST
from support.tampered import Copied

from search.driver.choice import FailedLosses, NothingToSelect
from search.driver.sealed import score_test
from search.driver.stages import STAGES, Order, trials_in_turn
from search.records.campaign import Campaign, parse_campaign
from search.records.ledger import Ledger
from search.records.records import stored_search
from search.records.runs import CampaignFolder
from search.records.scoring import score
from search.records.writable import WritableRecords
from search.results.campaign import CampaignResult, campaign_result
from search.results.comparison import summary_of
from search.results.summarise import summarise
from search.results.summary import Summary
from search.show.campaigns import campaign_csv, campaign_report, campaign_tables, row_name
from search.show.live import live_app
from search.stages import Role, Stage
from search.study.trial_queue import RunningTrial, TrialQueue
from trainables.common.errors import InvalidInput
from trainables.training.spec import Epochs, Failed
from trainables.training.train import Training

ALL = (Stage.SEARCH, Stage.SELECT, Stage.TEST)
QUIET = Console(quiet=True)
Opened = Callable[..., WritableRecords]
TINY = {**SHORTEST, "metrics": {"test": ["recall_at_1"]}}


@pytest.fixture
def searches(opened: Opened) -> list[WritableRecords]:
    return [opened(**TINY, name="lot-a"), opened(**TINY, name="lot-b", split={"ratio": 0.6})]


def train(queue: TrialQueue, job: RunningTrial) -> None:
    training = Training(job.spec, torch.device("cpu"))
    while not training.finished:
        training.run_epoch()
    queue.on_trial_result(job, Epochs(training.records, finished=True))


def queued(searches: Sequence[WritableRecords], *, allow_failed: bool = False) -> TrialQueue:
    order = Order(console=QUIET, stages=ALL, started=0.0, opener="lot", allow_failed=allow_failed)
    return TrialQueue(trials_in_turn([STAGES[stage](searches, order) for stage in ALL]))


def trained(searches: Sequence[WritableRecords]) -> Iterator[RunningTrial]:
    """Train everything; yield each trial before its training."""
    queue = queued(searches)
    while job := queue.next_trial():
        yield job
        train(queue, job)


def test_all_is_frozen_before_one_opening_of_the_lot_which_outlives_a_death(
    searches: list[WritableRecords], opened: Opened
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

    def dies_at_the_second(function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        if function is score:
            asked.extend(task.checkpoint for task in tasks)
        if any("lot-b" in checkpoint for checkpoint in asked):
            raise KeyboardInterrupt
        return in_turn(function, tasks)

    with pytest.raises(KeyboardInterrupt):
        score_test(searches, QUIET, opener="lot", reason=None, run=dies_at_the_second)
    assert [search.is_done(Stage.TEST) for search in searches] == [True, False, False]
    score_test(searches[1:], QUIET, opener="lot", reason=None, run=in_turn)
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


def test_a_search_without_a_choice_does_not_hold_up_the_others(searches: list[WritableRecords]) -> None:
    failing = searches[0].config.name

    def run(lot: Sequence[WritableRecords], *, allow_failed: bool = True) -> None:
        queue = queued(lot, allow_failed=allow_failed)
        while job := queue.next_trial():
            if job.study.name.startswith(failing):
                queue.on_trial_result(job, Failed(cause="CODE_ERROR", reason="x"))
            else:
                train(queue, job)

    with pytest.raises(NothingToSelect, match="No trial of pnp could be confirmed"):
        run(searches[:1])
    with pytest.raises(FailedLosses, match="Every trial of lot-a/pnp failed"):
        run(searches, allow_failed=False)
    run(searches)
    assert [search.is_done(Stage.SELECT) for search in searches] == [False, True]


# The folds of a cross-validation.


def test_each_fold_has_its_own_validation_and_test(lot: FinishedCampaign) -> None:
    result, runs = lot.result, lot.runs
    assert {cell.coordinates["split"] for cell in result.folds} == {"folds"}, "a fixed part has no folds"
    found = {tuple(cell.coordinates[key] for key in ("training", "fold", "metric")): cell.mean for cell in result.folds}
    (opening,) = json.loads((runs / "lot-folds" / "test.json").read_text())["openings"]
    scores = [score for score in opening["scores"] if score["source_trial"] == 0]
    seeds = list(dict.fromkeys(score["seed"] for score in scores))
    assert {key: mean for key, mean in found.items() if key[2] == "recall_at_1"} == {
        (str(seeds.index(score["seed"]) + 1), str(score["fold"]), "recall_at_1"): score["metrics"]["recall_at_1"]
        for score in scores
    }
    entry = json.loads((runs / "lot-folds" / "summary.json").read_text())["losses"]["pnp"]["default"]
    validated = [mean or 0 for key, mean in found.items() if key[2] == "validation"]
    assert sorted(validated) == sorted(entry["final"]["values"])
    mean = fmean(mean or 0 for key, mean in found.items() if key[2] == "recall_at_1")
    assert mean == pytest.approx(entry["test"]["recall_at_1"]["mean"])
    (table,) = [table for table in campaign_tables(lot.campaign.config, result) if table.title == "Folds"]
    per_cent = [f"{100 * (cell.mean or 0):.2f}" for cell in result.folds[-2:]]
    assert table.rows[-1] == ("pnp", "2", "2", *per_cent)
    assert len(table.rows) == 4, "two folds of two seeds"


def test_asked_for_again_the_result_is_printed_at_once_and_written_to_files(
    lot: FinishedCampaign, tmp_path: Path
) -> None:
    runs = Copied(lot.runs, tmp_path / "runs", "lot").runs
    command = ("run", runs / "lot" / "campaign.yaml", "--runs", runs)
    files = [tmp_path / f"lot{suffix}" for suffix in (".csv", ".md", ".tex")]
    outputs = [word for file in files for word in ("--output", str(file))]
    result = json.loads(holdout_here(*command, *outputs, "--json").stdout)
    assert result == json.loads((runs / "lot" / "campaign.json").read_text())
    assert len(result["cells"]) == 3 * 2
    for cell in result["cells"]:
        entry = summary(runs, f"lot-{cell['coordinates']['split']}")["losses"]["pnp"]["default"]
        expected = entry["confirmed"] if cell["coordinates"]["metric"] == "validation" else entry["test"]["recall_at_1"]
        assert cell["values"] == expected["values"]
    records = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [float(record["mean"]) for record in records] == [cell["mean"] for cell in result["cells"]]
    for file in files[1:]:
        assert lot.campaign.config.study in file.read_text()


# The networks without training in the table, pairs and sentences.

CONTENT: dict[str, Any] = {
    "name": "sizes",
    "study": "from one network",
    "base": {
        **GLYPHS,
        "model": {"backbone": BACKBONE, "freeze": "backbone"},
        "losses": ["pnp"],
        "search": {"trials": 1},
        "final": {"seeds": 2},
        "metrics": {"test": ["recall_at_1"]},
    },
    "vary": {"size": {"4": {"model.embedding_dim": 4}, "8": {"model.embedding_dim": 8}}},
    "table": {"rows": ["loss"], "metrics": ["validation", "recall_at_1"]},
}
Finished = tuple[Path, Campaign, CampaignResult, list[Summary]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A finished campaign from the weights of a random network."""
    runs = tmp_path_factory.mktemp("campaign") / "runs"
    weights = save_convnet(tmp_path_factory.mktemp("weights"))
    base = {**CONTENT["base"], "model": {**CONTENT["base"]["model"], "weights": str(weights)}}
    with campaign_here(runs, {**CONTENT, "base": base}) as (campaign, result):
        summaries = [summary_of(stored_search(runs, each.name)) for each in campaign.searches]
        return runs, campaign, result, summaries


def test_the_table_begins_with_the_networks_without_training(finished: Finished) -> None:
    _, campaign, result, summaries = finished
    table = campaign_tables(campaign.config, result)[0]
    assert [row[0] for row in table.rows] == ["untrained", "whitened", "pnp"]
    cells = table.rows[0][1:]
    for place, untrained in enumerate(found.untrained for found in summaries):
        assert untrained is not None
        assert untrained.test is not None
        values = {untrained.confirmed, untrained.test["recall_at_1"].mean}
        half = len(cells) // 2
        assert {*cells[place * half : (place + 1) * half]} == {f"{100 * value:.2f}" for value in values}
    assert "untrained,4,baseline,recall_at_1," in campaign_csv(result)


def test_each_tuned_loss_is_paired_with_the_untrained_network_of_its_search(finished: Finished) -> None:
    _, campaign, result, _ = finished
    against = [pair for pair in result.pairs if pair.second.role is Role.BASELINE]
    assert {(pair.first.search, pair.first.loss, pair.second.search, pair.second.loss) for pair in against} == {
        (search, "pnp", search, "untrained") for search in ("sizes-4", "sizes-8")
    }
    assert row_name(campaign.config, result, against[0].second).startswith("untrained ")
    assert not [warning for warning in result.warnings if "chosen after" in warning]
    with pytest.raises(InvalidInput, match="roles"):
        parse_campaign({**CONTENT, "table": {**CONTENT["table"], "roles": ["baseline"]}})


def test_the_report_begins_with_every_mean_and_the_live_page_lists_the_searches(finished: Finished) -> None:
    runs, campaign, result, _ = finished
    status, _, body = asked(live_app(runs), "/api/campaigns", "", (b"host", b"localhost"))
    assert status == 200, body
    names = [each.name for each in campaign.searches]
    assert json.loads(body) == [{"name": "sizes", "searches": names, "problem": None}]
    report = campaign_report(CampaignFolder(runs, "sizes"))
    assert [section.name for section in report.sections] == ["study", "again"]
    cells = " ".join(cell for table in report.sections[0].results for row in table.rows for cell in row)
    assert all(cell.mean is not None and f"{100 * cell.mean:.2f}" in cells for cell in result.cells)


def test_other_networks_are_told_among_the_rows_of_a_column(finished: Finished) -> None:
    runs, campaign, result, summaries = finished
    assert not any("rows differ" in told for told in result.warnings), "the sizes are columns"
    content = campaign.config.model_dump(mode="json")
    as_rows = parse_campaign({**content, "table": {"rows": ["loss", "size"], "metrics": ["recall_at_1"]}})
    searches = [stored_search(runs, summary.name) for summary in summaries]
    warnings = campaign_result(as_rows, searches).warnings
    assert [told for told in warnings if "rows differ" in told] == [
        "rows differ in more than the loss, which may explain their differences: "
        "model.embedding_dim is 4 in sizes-4, but 8 in sizes-8"
    ]
