"""Campaign files: every one that comes with the project, and mistakes made on purpose."""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import holdout_here, plain
from support.cost import AFFORDABLE, images_seen
from support.made_search import frozen_selection
from support.refusals import sentences_of
from support.small_search import draw_folder
from support.summaries import blank_summaries, made_loss, made_row, made_summary
from support.trees import Trees, on_tree, shipped_campaign, shipped_file

from search.config.recipes import campaigns, recipes
from search.config.yaml_file import read_yaml
from search.driver.make_plan import read_campaign_plans, read_plan
from search.records.campaign import VALIDATION, Campaign, parse_campaign, read_config, recipes_of
from search.records.ledger import Ledger
from search.records.plan import Plan
from search.records.runs import CampaignFolder, RunFolder
from search.results.campaign import data_axes, measured
from search.results.statistics import over_seeds
from search.results.summary import Summary
from search.show.campaigns import campaign_table
from search.text_table import TextTable
from trainables.common.errors import InvalidInput
from trainables.common.files import write_json

SMALL = [name for name, path in campaigns().items() if not recipes_of(read_config(read_yaml(path)))]


def planned(content: dict[str, Any], folder: CampaignFolder) -> list[Plan]:
    return read_campaign_plans(content, folder.runs)[1]


@pytest.mark.parametrize("name", campaigns())
def test_every_campaign_is_made_of_search_files(name: str, trees: Trees) -> None:
    """Parsing refuses labels that clash, cells that do not exist and metrics that are not computed."""
    campaign = shipped_campaign(name, trees)
    assert campaign.name == name
    names = [each.name for each in campaign.searches]
    assert len(set(names)) == len(names)
    for each in campaign.searches:
        assert each.tracking.experiment == name


@pytest.mark.parametrize("name", SMALL)
def test_a_small_campaign_can_be_run_and_is_affordable(name: str, trees: Trees, tmp_path: Path) -> None:
    campaign, plans = read_campaign_plans(shipped_file(name, trees), tmp_path)
    assert len(plans) == len(campaign.searches)
    assert sum(images_seen(each) for each in campaign.searches) < AFFORDABLE


def tiny(**changes: Any) -> dict[str, Any]:
    return {
        "name": "tiny",
        "study": "a test",
        "base": {
            "dataset": {"name": "glyphs", "num_classes": 12, "images_per_class": 6},
            "losses": ["mpa", "pnp"],
            "training": {"batch_size": 20},
        },
        "vary": {"K": {"1": {"space.mpa.proxies_per_class": 1}, "2": {"space.mpa.proxies_per_class": 2}}},
        "table": {"rows": ["K"]},
        **changes,
    }


def test_settings_make_the_searches() -> None:
    campaign = parse_campaign(tiny(vary={**tiny()["vary"], "size": {"8": {"model.embedding_dim": 8}, "16": {}}}))
    assert [each.name for each in campaign.searches] == ["tiny-1-8", "tiny-1-16", "tiny-2-8", "tiny-2-16"]
    assert [each.space["mpa"] for each in campaign.searches] == [{"proxies_per_class": count} for count in (1, 1, 2, 2)]
    assert [each.model.embedding_dim for each in campaign.searches] == [8, 64, 8, 64]
    assert {each.metrics.test for each in campaign.searches} == {("recall_at_1",)}


def test_a_recipe_is_built_upon(trees: Trees) -> None:
    """Mappings are united key by key; the recipe's spaces of losses that are left out go with them."""
    base = {"dataset": on_tree(trees, "cub200"), "losses": ["mpa"], "search": {"trials": 3}}
    campaign = parse_campaign(tiny(recipe="mpa-cub200", base=base))
    recipe = read_yaml(recipes()["mpa-cub200"])
    config = campaign.searches[1]
    assert config.space == {"mpa": {"proxies_per_class": 2}}
    assert (config.search.trials, config.search.objective) == (3, recipe["search"]["objective"])
    assert config.training.epochs == recipe["training"]["epochs"]


def test_the_mistakes_of_the_searches_are_said_with_the_campaign_s_own(tmp_path: Path) -> None:
    """Also those that a file's form does not show, such as a range that nothing lies in."""
    content = tiny(table={"rows": ["K"], "metrics": ["recall"]}, name="a/b", study=3)
    content["base"]["training"] = {"batch_size": 20, "epochs": -1}
    content["base"]["space"] = {"mpa": {"margin": {"low": 0.5, "high": 0.1}}}
    content["vary"]["K"]["2"]["training.batchsize"] = 10
    said = sentences_of(lambda: read_campaign_plans(content, tmp_path))
    begin = ["study: ", "name: ", "table.metrics: ", "training.epochs: ", "space.mpa.margin", "2: training.batchsize: "]
    assert len(said) == len(begin)
    for expected in begin:
        assert any(sentence.startswith(expected) for sentence in said), (expected, said)
    content["vary"] = {"loss": {}}
    said = sentences_of(lambda: read_campaign_plans(content, tmp_path))
    heads = sorted(sentence.partition(":")[0] for sentence in said)
    assert heads == ["name", "study", "table.metrics", "vary"], "which the searches are is open"


def test_a_campaign_that_is_refused_at_the_last_moment_leaves_nothing(tmp_path: Path) -> None:
    root = draw_folder(tmp_path / "images", images=6)
    (root / "class-00" / "03.png").write_bytes(b"garbage")
    file = tmp_path / "tiny.yaml"
    base = {**tiny()["base"], "dataset": {"name": "folder", "root": str(root)}}
    file.write_text(yaml.safe_dump(tiny(base=base)))
    said = plain(holdout_here("run", file, "--runs", tmp_path / "runs", code=2).stderr)
    assert "class-00/03.png" in said
    assert not (tmp_path / "runs").exists()


def begin(plan: Plan) -> None:
    """Write what is left of a search that was killed at its very beginning."""
    plan.folder.path.mkdir()
    plan.folder.config.write_text(plan.config.to_yaml())
    write_json(plan.folder.split, plan.split.to_json())


@pytest.fixture
def folder(tmp_path: Path) -> CampaignFolder:
    folder = CampaignFolder(tmp_path, "tiny")
    campaign, plans = read_campaign_plans(tiny(), tmp_path)
    for plan in plans:
        begin(plan)
    folder.begin(campaign.config)
    return folder


def varied(**labels: int) -> dict[str, Any]:
    """The campaign's file with these labels instead of its own, each the number of mpa's proxies."""
    return tiny(vary={"K": {label: {"space.mpa.proxies_per_class": count} for label, count in labels.items()}})


def open_test(folder: CampaignFolder) -> None:
    """Freeze the choices of the campaign's searches, and open the test classes for them."""
    selections = {}
    for name in ("tiny-1", "tiny-2"):
        selection = frozen_selection(name, ["mpa"])
        selection.save(RunFolder(folder.runs, name).selection)
        selections[name] = selection.digest
    Ledger(RunFolder(folder.runs, "tiny-1").openings).open(
        test_digest="t", search="tiny", selections=selections, configurations={}, studies={}, reason="its own"
    )


def test_a_campaign_that_goes_on_may_grow_until_the_test_is_opened(folder: CampaignFolder) -> None:
    grown = varied(**{"1": 1, "2": 2, "4": 4})
    *_, four = planned(grown, folder)
    assert four.folder.name == "tiny-4"
    open_test(folder)
    assert len(planned(tiny(), folder)) == 2
    elsewhere = CampaignFolder(folder.runs / "elsewhere", folder.name)
    assert len(planned(tiny(), elsewhere)) == 2, "its openings are counted with those of the first"
    for is_there in (False, True):  # nor does a search that was there before
        if is_there:
            begin(four)
        with pytest.raises(InvalidInput, match="tiny-4: the test classes were opened for tiny-1, tiny-2"):
            planned(grown, folder)


def test_a_campaign_that_goes_on_drops_and_changes_nothing_but_its_table(folder: CampaignFolder) -> None:
    smaller = tiny()
    smaller["base"]["model"] = {"embedding_dim": 8}
    for changed, said in (
        (varied(**{"1": 1, "4": 4}), "vary: tiny started with tiny-2 too; put the labels back"),
        (varied(**{"1": 1, "2": 3}), "2: space.mpa.proxies_per_class: the search tiny-2 began with 2"),
        (smaller, "model.embedding_dim: the search tiny-1 began with 64"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(said)):
            planned(changed, folder)
    assert len(planned(tiny(study="seen in another way", table={"rows": ["loss"], "roles": ["tuned"]}), folder)) == 2


def test_a_campaign_and_a_search_have_different_names(folder: CampaignFolder, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="name: tiny is a campaign in"):
        read_plan({"name": "tiny", **tiny()["base"]}, folder.runs)
    (tmp_path / "other" / "tiny").mkdir(parents=True)
    (tmp_path / "other" / "tiny" / "search.yaml").write_text("")
    with pytest.raises(InvalidInput, match="tiny is a search in"):
        read_campaign_plans(tiny(), tmp_path / "other")


def test_a_damaged_result_is_a_sentence(folder: CampaignFolder) -> None:
    folder.result.write_text('{"folds": 3}')
    said = plain(holdout_here("report", "tiny", "--runs", folder.runs, code=2).stderr)
    assert said.startswith(f"{folder.result} is damaged, or another version wrote it (")
    assert said.endswith("; `holdout run` with the campaign's file writes it again.")


def table_of(campaign: Campaign, summaries: Sequence[Summary], notes: Sequence[str] = ()) -> TextTable:
    return campaign_table(campaign.config, data_axes(campaign), [*measured(campaign, summaries)], "title", notes)


def test_the_table_has_the_shape_that_is_asked_for() -> None:
    table = {"rows": ["K"], "metrics": [VALIDATION, "recall_at_1", "dists_intra"], "roles": ["tuned"]}
    campaign = parse_campaign(tiny(table=table))
    number = over_seeds([0.5, 0.6])
    entry = made_loss(tuned=made_row(confirmed=number, test=dict.fromkeys(("recall_at_1", "dists_intra"), number)))
    losses = ({"mpa": entry, "pnp": entry}, {"mpa": entry, "pnp": made_loss()})
    summaries = [made_summary(of, each.name) for of, each in zip(losses, campaign.searches, strict=True)]
    found = table_of(campaign, summaries, ["a note"])
    columns = [f"{loss}\n{metric}" for loss in ("mpa", "pnp") for metric in (VALIDATION, "recall_at_1", "dists_intra")]
    assert found.header == ("K", *columns)
    three = ("55.00 ± 7.07", "55.00 ± 7.07", "0.55 ± 0.07071")
    assert found.rows == (("1", *three, *three), ("2", *three, "–", "–", "–"))
    assert found.notes == ("configuration tuned", "a note")


def test_what_follows_from_the_row_makes_no_column() -> None:
    vary = {"method": {"a": {"losses": ["mpa"]}, "b": {"losses": ["pnp"]}}, "size": {"8": {}, "16": {}}}
    campaign = parse_campaign(tiny(vary=vary, table={"rows": ["method"]}))
    found = table_of(campaign, blank_summaries(campaign))
    assert found.header == ("method", *("\n".join(column) for column in product(("8", "16"), ("default", "tuned"))))
    assert [row[0] for row in found.rows] == ["a", "b"]
