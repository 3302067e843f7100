"""The networks without training in a campaign's table, pairs and sentences."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.bare_networks import BACKBONE, save_convnet
from support.commands import holdout_here
from support.finished_search import campaign_here
from support.serving import asked

from search.campaigns import campaign_report
from search.campaigns.result import campaign_result
from search.campaigns.tables import CampaignResult, campaign_csv, campaign_tables, row_name
from search.config.campaign import Campaign, parse_campaign
from search.plan.runs import CampaignFolder, RunFolder
from search.plan.search import search_so_far
from search.plan.stored import stored_search
from search.report.live import live_app
from search.report.results import Summary, stored_summary
from search.stages import Role
from trainables.errors import InvalidInput

CONTENT: dict[str, Any] = {
    "name": "sizes",
    "study": "from one network",
    "base": {
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
        "model": {"backbone": BACKBONE, "freeze": "backbone"},
        "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "losses": ["pnp", "proxy_anchor"],
        "search": {"trials": 1},
        "selection": {"finalists": 1, "seeds": 1},
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
        summaries = [stored_summary(RunFolder(runs, member.config.name)) for member in campaign.members]
        return runs, campaign, result, summaries


def test_the_table_begins_with_the_networks_without_training(finished: Finished) -> None:
    _, campaign, result, summaries = finished
    table = campaign_tables(campaign.config, result)[0]
    assert [row[0] for row in table.rows] == ["untrained", "whitened", "pnp", "proxy_anchor"]
    for summary in summaries:
        assert summary.untrained is not None
        assert summary.untrained.test is not None
        column = summaries.index(summary) * (len(table.header) - 1) // 2 + 1
        values = {summary.untrained.confirmed, summary.untrained.test["recall_at_1"].mean}
        cells = set(table.rows[0][column : column + (len(table.header) - 1) // 2])
        assert cells == {f"{100 * value:.2f}" for value in values}
    assert "untrained,4,baseline,recall_at_1," in campaign_csv(result)


def test_each_tuned_loss_is_paired_with_the_untrained_network_of_its_search(finished: Finished) -> None:
    _, campaign, result, _ = finished
    against = [pair for pair in result.pairs if pair.second.role is Role.BASELINE]
    assert {(pair.first.search, pair.first.loss, pair.second.search, pair.second.loss) for pair in against} == {
        (search, loss, search, "untrained") for search in ("sizes-4", "sizes-8") for loss in ("pnp", "proxy_anchor")
    }
    assert row_name(campaign.config, result, against[0].second).startswith("untrained ")
    assert not [warning for warning in result.warnings if "chosen after" in warning]
    with pytest.raises(InvalidInput, match="roles"):
        parse_campaign({**CONTENT, "table": {**CONTENT["table"], "roles": ["baseline"]}})


def test_the_live_page_lists_the_campaigns_searches(finished: Finished) -> None:
    runs, campaign, _, _ = finished
    status, _, body = asked(live_app(runs), "/api/campaigns", "", (b"host", b"localhost"))
    assert status == 200, body
    names = [member.config.name for member in campaign.members]
    assert json.loads(body) == [{"name": "sizes", "searches": names, "problem": None}]


def test_a_campaign_from_weights_is_verified_and_its_report_begins_with_every_mean(finished: Finished) -> None:
    runs, _, result, _ = finished
    holdout_here("verify", "sizes", "--runs", runs)
    page = Path(holdout_here("report", "sizes", "--runs", runs).stdout.strip())
    assert "untrained" in page.read_text()
    report = campaign_report(CampaignFolder(runs, "sizes"))
    assert [section.name for section in report.sections] == ["study", "again"]
    cells = " ".join(cell for table in report.sections[0].results for row in table.rows for cell in row)
    assert all(cell.mean is not None and f"{100 * cell.mean:.2f}" in cells for cell in result.cells)


def test_other_networks_are_told_among_the_rows_of_a_column(finished: Finished) -> None:
    runs, campaign, result, summaries = finished
    assert not any("rows differ" in told for told in result.warnings), "the sizes are columns"
    content = campaign.config.model_dump(mode="json")
    as_rows = parse_campaign({**content, "table": {"rows": ["loss", "size"], "metrics": ["recall_at_1"]}})
    searches = [search_so_far(stored_search(runs, summary.name)) for summary in summaries]
    warnings = campaign_result(as_rows, list(zip(searches, summaries, strict=True))).warnings
    assert [told for told in warnings if "rows differ" in told] == [
        "rows differ in more than the loss, which may explain their differences: "
        "model.embedding_dim is 4 in sizes-4, but 8 in sizes-8"
    ]
