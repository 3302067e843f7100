"""What a paper prints, beside what a small campaign came to: in the tables and in the report."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.finished_search import campaign_here

from search.campaigns.cells import CampaignResult, fewer_classes
from search.campaigns.report import study
from search.campaigns.tables import campaign_tables, comparable
from search.config.campaign import Campaign, parse_campaign
from search.config.yaml_file import apply_settings
from search.report.text_table import NOTHING, TextTable
from search.stages import Role
from trainables.mistakes import Mistakes

WRITTEN: dict[str, Any] = {
    "name": "lot",
    "study": "two losses at two sizes",
    "base": {
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
        "training": {"epochs": 1, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "losses": ["pnp", "proxy_anchor"],
        "training_by_loss": {"proxy_anchor": {"sampler": "random"}},
        "search": {"trials": 1},
        "selection": {"finalists": 1, "seeds": 1},
        "final": {"seeds": 1},
    },
    "vary": {"size": {"4": {"model.embedding_dim": 4}, "8": {"model.embedding_dim": 8}}},
    "table": {"rows": ["loss"], "metrics": ["recall_at_1"]},
    "published": [
        {
            "source": "Table 1",
            "role": "default",
            "metrics": ["recall_at_1"],
            "cells": {"pnp 4": [50], "pnp 8": [70], "proxy_anchor 4": [60], "proxy_anchor 8": [80]},
        },
    ],
    "published_choices": [{"source": "Table 2", "cells": {"proxy_anchor 4": {"margin": 0.3, "scale": 16}}}],
    "quoted": [
        {
            "source": "Table 3",
            "metrics": ["recall_at_1", "dists_intra"],
            "rows": {"HTL": [57.1, 0.25], "MIC": [None, 0.3]},
        },
    ],
}


def as_text(table: TextTable) -> list[str]:
    return [" | ".join(row) for row in (table.header, *table.rows)] + list(table.notes)


@pytest.fixture(scope="module")
def lot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Campaign, CampaignResult]]:
    with campaign_here(tmp_path_factory.mktemp("beside") / "runs", WRITTEN) as found:
        yield found


def test_numbers_ranks_and_choices_stand_beside_ours(lot: tuple[Campaign, CampaignResult]) -> None:
    campaign, result = lot
    tables = {table.title: as_text(table) for table in campaign_tables(campaign, result, [])}
    table = tables["lot: two losses at two sizes"]
    assert "in brackets: Table 1" in table
    assert sum(line.count("(") for line in table[1:3]) == 4, table
    chosen = tables["Chosen"]
    assert chosen[0] == "search | loss | hyperparameters | published"
    assert [line.rpartition(" | ")[2] for line in chosen[1:5]] == [NOTHING, "margin=0.3, scale=16", NOTHING, NOTHING]
    assert chosen[5:] == ["published: Table 2"]
    ranks = {line.split(" | ")[0]: line for line in tables["Tournament, default"]}
    assert "(4)" in ranks["pnp"]
    assert "(1.00)" in ranks["proxy_anchor"]
    assert "in brackets: the ranks of the published numbers" in ranks
    assert "Tournament, tuned" in tables
    assert "(" not in tables["Tournament, tuned"][1], "no number of a tuned configuration was printed"
    assert result.published_tournaments.keys() == {Role.DEFAULT}


def test_the_report_says_the_same(lot: tuple[Campaign, CampaignResult]) -> None:
    campaign, result = lot
    section = study(campaign.config, result)
    assert "Published, in brackets: Table 1." in section.remarks
    (figure,) = [figure for figure in section.figures if figure.name == "ranks-default"]
    assert "diamond" in str(figure.picture), "the label may break within: diamond: published"
    assert any("(1.00)" in entry for row in figure.table.rows for entry in row)


FEWER = (
    "published numbers are of trainings on all training classes, ours of trainings on 90 % of them; with "
    "base.final.train_on=all the final trainings use all"
)


def test_the_table_and_the_report_say_that_the_paper_trained_on_more_classes(
    lot: tuple[Campaign, CampaignResult],
) -> None:
    campaign, result = lot
    assert FEWER in as_text(campaign_tables(campaign, result, [])[0])
    assert FEWER in study(campaign.config, result).remarks


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ((), "90 %"),
        (("base.split.ratio=0.75",), "75 %"),
        (("base.split.folds=4",), "75 %"),
        (("vary.size.4.split.ratio=0.7",), "a part"),
        (("vary.size.4.final.train_on=all",), "90 %"),
        (("base.final.train_on=all",), None),
        (("published=[]",), None),
    ],
)
def test_it_says_of_how_many(settings: tuple[str, ...], share: str | None) -> None:
    campaign = parse_campaign(apply_settings(WRITTEN, settings))
    assert list(fewer_classes(campaign)) == ([FEWER.replace("90 %", share)] if share else [])


def test_numbers_of_trainings_with_validation_classes_are_like_ours() -> None:
    published = [{**section, "train_on": "train"} for section in WRITTEN["published"]]
    assert not list(fewer_classes(parse_campaign({**WRITTEN, "published": published})))


def test_training_on_all_classes_keeps_the_numbers() -> None:
    on_all = comparable(apply_settings(WRITTEN, ("base.final.train_on=all",)), WRITTEN)
    assert on_all["published"][0]["cells"].keys() == WRITTEN["published"][0]["cells"].keys()
    assert on_all["published"][0]["left_out"] is None


def test_what_is_quoted_stands_as_it_is_printed(lot: tuple[Campaign, CampaignResult]) -> None:
    campaign, result = lot
    (table,) = [table for table in campaign_tables(campaign, result, []) if table.title == "Printed, Table 3"]
    assert as_text(table) == [" | recall_at_1 | dists_intra", "HTL | 57.10 | 0.250", f"MIC | {NOTHING} | 0.300"]
    assert table in study(campaign.config, result).tables


def test_a_quoted_row_has_a_number_a_metric() -> None:
    wrong = {**WRITTEN, "quoted": [{"source": "p", "metrics": ["recall_at_1"], "rows": {"HTL": [57.1, 60.0]}}]}
    with pytest.raises(Mistakes, match=r"quoted: each row needs 1 numbers \(recall_at_1\); see HTL"):
        parse_campaign(wrong)


def test_of_another_setting_nothing_stands_beside_ours(lot: tuple[Campaign, CampaignResult]) -> None:
    """The same results, read as those of a campaign whose file says 100 epochs."""
    _, result = lot
    written = apply_settings(WRITTEN, ["base.training.epochs=100"])
    campaign = parse_campaign(comparable(WRITTEN, written))
    cells = tuple(cell.model_copy(update={"published": None}) for cell in result.cells)
    alone = result.model_copy(update={"cells": cells, "published_tournaments": {}})
    (first, chosen, *_) = [as_text(table) for table in campaign_tables(campaign, alone, ["base.training.epochs=1"])]
    told = "of another setting: training.epochs is 1 here and 100 there"
    assert f"not compared: Table 1; {told}" in first
    assert chosen[0] == "search | loss | hyperparameters"
    assert chosen[-1] == f"not compared: Table 2; {told}"
