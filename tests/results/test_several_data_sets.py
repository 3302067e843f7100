"""Campaigns over several data sets, with a table for each."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.finished_search import campaign_here
from support.refusals import sentences_of
from support.small_search import GLYPHS
from support.trees import Trees, shipped_campaign

from examples.papers.tournament import main
from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.records.campaign import Campaign, parse_campaign
from search.records.runs import CampaignFolder
from search.results.campaign import CampaignResult
from search.show.campaigns import campaign_tables, study

LOSSES = ["pnp", "contrastive"]
DATA = {"first": {}, "second": {"dataset.seed": 1}}
WRITTEN: dict[str, Any] = {
    "name": "sets",
    "study": "two losses on two data sets",
    "base": {
        **GLYPHS,
        "losses": LOSSES,
        "search": {"trials": 1},
        "final": {"seeds": 2},
        "metrics": {"test": ["recall_at_1"]},
    },
    "vary": {"data": DATA},
    "table": {"rows": ["loss"], "metrics": ["recall_at_1"], "roles": ["default"]},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Campaign, CampaignResult]]:
    with campaign_here(tmp_path_factory.mktemp("sets") / "runs", WRITTEN) as found:
        yield found


def test_each_data_set_has_a_table_and_is_a_setting_of_the_tournament(
    ran: tuple[Campaign, CampaignResult], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign, result = ran
    tables = [table for table in campaign_tables(campaign.config, result) if table.title.startswith("sets: ")]
    assert [table.title for table in tables] == [f"sets: {campaign.config.study}, {name}" for name in DATA]
    for table, name in zip(tables, DATA, strict=True):
        assert table.header == ("loss", "recall_at_1")
        assert [row[0] for row in table.rows] == LOSSES
        means = [cell.mean or 0 for cell in result.cells if cell.coordinates["data"] == name]
        shown = [float(row[1].split()[0]) / 100 for row in table.rows]
        assert shown == pytest.approx(means, abs=1e-4)
    assert [len(table.notes) > 1 for table in tables] == [False, True], "notes on all data sets are printed once"
    section = study(campaign.config, result)
    assert [len(table.rows) for table in section.results] == [len(LOSSES)] * len(DATA), "in the report too"
    assert result.data_axes == ("data",)
    folder = CampaignFolder(tmp_path, campaign.name)
    folder.begin(campaign.config)
    folder.end(result.model_dump(mode="json"))
    main([campaign.name, "--runs", str(tmp_path)])
    assert capsys.readouterr().out.startswith("default, 2 settings\n")


def test_pairs_share_their_data_set(ran: tuple[Campaign, CampaignResult]) -> None:
    _, result = ran
    assert len(result.pairs) in (0, 2), "all pairs of losses in each data set"
    for pair in result.pairs:
        (first, second) = (result.searches[key.search]["data"] for key in (pair.first, pair.second))
        assert first == second
    assert sorted(result.openings.values()) == [
        f"data {name}: this test set: 1 opening by 1 search, 2 configurations scored; openings of these classes before "
        "this choice's: 0"
        for name in DATA
    ]


# Recipes of labels.

NAMES = ("cub200", "cars196", "sop")
RECIPES = {"data-sets-mpa": "mpa-{}", "data-sets-sampling": "topk-{}", "data-sets-thesis": "thesis-{}-bninception"}


@pytest.mark.parametrize("name", RECIPES)
def test_each_data_set_is_trained_by_its_recipe(name: str, trees: Trees) -> None:
    campaign = shipped_campaign(name, trees)
    assert {place["data"] for place in campaign.labels.values()} == set(NAMES)
    for search in campaign.searches:
        data = campaign.labels[search.name]["data"]
        recipe = read_search(Path(RECIPES[name].format(data)))
        alone = parse_config({**recipe, "dataset": search.dataset.model_dump(mode="json")})
        assert recipe["dataset"]["name"] == data == search.dataset.name
        for section in ("model", "split", "final", "objective"):
            assert getattr(search, section) == getattr(alone, section), section
        for loss in search.loss_names:
            assert search.training_of(loss) == alone.training_of(loss)


@pytest.mark.parametrize(
    ("vary", "told"),
    [
        ({"data": {"a": {"recipe": "mpa-cub"}}}, "the label a of data has the recipe 'mpa-cub', but the recipe of"),
        (
            {"data": {"a": {"recipe": "mpa-cub200"}}, "net": {"b": {"recipe": "mpa-sop"}}},
            "data and net both name recipes; keep those of one axis",
        ),
    ],
)
def test_a_wrong_recipe_is_a_sentence(vary: dict[str, Any], told: str) -> None:
    assert told in "\n".join(sentences_of(lambda: parse_campaign({**WRITTEN, "vary": vary})))
