"""``holdout papers``: no item of a paper is missing, and its commands can be run."""

import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from support.commands import json_of, printed
from support.cost import AFFORDABLE, images_seen
from support.spaces import spaces_of
from support.trees import Trees

from benchmarks.__main__ import BENCHMARKS
from examples.papers.figures import FIGURES, SUFFIXES
from holdout.cli.main import program
from search.config.recipes import PaperItem, is_campaign, papers, read_file, read_search, recipes
from search.config.search_config import SearchConfig, parse_config
from search.config.yaml_file import read_yaml
from search.driver.make_plan import read_campaign_plans, read_plan
from search.records.campaign import Campaign, parse_campaign

COMMANDS = typer.main.get_command(program()).commands  # type: ignore[attr-defined]

# Figures and tables, counted in the papers.
COUNTED = {"mpa": (3, 8), "sampling": (6, 1), "pnp": (8, 7), "thesis": (32, 21)}

# The data sets that the captions name, and the sections of those that name none.
OF_DATA = {
    "mpa": {
        "Figure 2": "cub200", "Figure 3": "cars196", "Table 4": "cub200", "Table 5": "cars196", "Table 6": "sop",
        "Table 7": "cub200", "Table 8": "cars196",
    },
    "sampling": {
        "Figure 4 (a, b)": "cub200 cars196", "Figure 4 (c, f)": "cub200", "Figure 4 (d, e)": "cub200 cars196",
        "Figure 5": "sop", "Figure 6": "cub200 cars196", "Table 1": "cub200 cars196 sop",
    },
    "pnp": {
        "Figure 7": "sop vehicleid inaturalist", "Figure 8": "sop vehicleid", "Table 1": "sop", "Table 2": "vehicleid",
        "Table 3": "sop", "Table 4": "vehicleid", "Table 5": "inaturalist", "Table 6": "sop", "Table 7": "vehicleid",
    },
    "thesis": {
        "Figure 1": "cars196", "Figure 27": "cub200", "Figure 28": "cub200", "Figure 29": "cub200",
        "Figure 30": "cub200", "Figure 31": "cub200", "Table 6": "cub200", "Table 7": "cub200", "Table 8": "cub200",
        "Table 9": "cars196", "Table 10": "sop", "Table 11": "cub200", "Table 12": "cub200", "Table 13": "cub200",
        "Table 14": "cub200", "Table 15": "cub200", "Table 16": "cub200", "Table 17": "cub200", "Table 18": "cars196",
        "Table 19": "sop", "Table 20": "cars196", "Table 21": "cars196",
    },
}  # fmt: skip

ITEMS = [(name, entry) for name, paper in papers().items() for entry in paper.items]
SMALL = sorted({entry.small for _, entry in ITEMS if entry.small})


def parsed(line: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each command of a line with its arguments as parsed by the program; those of a benchmark are its name."""
    for words in map(shlex.split, line.split(" && ")):
        program, command, *arguments = words
        if program == "python" and arguments[0] == "benchmarks":
            (name,) = arguments[1:]
            yield "benchmarks", {"name": name}
        elif program == "python":
            module, figure, option, file = arguments
            assert (command, option) == ("-m", "--to")
            yield module, {"figure": figure, "to": Path(file)}
        else:
            assert program == "holdout"
            context = COMMANDS[command].make_context(command, arguments)
            assert not context.params.get("as_json")
            yield command, context.params


def on_tree(content: dict[str, Any], name: str, trees: Trees) -> dict[str, Any]:
    """Return the ``dataset`` section for the data set ``name``, on a small tree if it takes a folder."""
    section = {**content.get("dataset", {}), "name": name}
    assert (section.get("root") == "DIR") == (name != "glyphs"), "DIR stands for the folder of a published data set"
    return section if name == "glyphs" else {**section, "root": str(trees(name)), "subset": True}


def search_of(params: dict[str, Any], trees: Trees) -> dict[str, Any]:
    """Return the search file of a ``holdout run``."""
    content = read_search(params["file"], params["settings"] or [])
    return {**content, "dataset": on_tree(content, content["dataset"]["name"], trees)}


def campaign_file(params: dict[str, Any], trees: Trees) -> dict[str, Any]:
    """Return the file of a ``holdout run`` of a campaign."""
    content = read_file(params["file"], params["settings"] or [])
    base = content["base"]
    of_data = read_yaml(recipes()[content["recipe"]]) if content.get("recipe") else base
    dataset = on_tree(base, of_data["dataset"]["name"], trees)
    return {**content, "base": {**base, "dataset": dataset}}


def campaign_of(params: dict[str, Any], trees: Trees) -> Campaign:
    return parse_campaign(campaign_file(params, trees))


@cache
def configs_of(line: str, trees: Trees) -> dict[str, SearchConfig]:
    """Return every search of a line by name, after all its commands were validated."""
    made: dict[str, SearchConfig] = {}
    for command, params in parsed(line):
        if command == "run" and is_campaign(read_file(params["file"])):
            campaign = campaign_of(params, trees)
            made |= {each.name: each for each in campaign.searches}
        elif command == "run":
            config = parse_config(search_of(params, trees))
            made[config.name] = config
        elif command == "report":
            assert set(params["names"]) <= made.keys()
        elif command == "examples.papers":
            assert params["figure"] in FIGURES
            assert params["to"].suffix in SUFFIXES
        elif command == "benchmarks":
            assert params["name"] in BENCHMARKS
        else:
            assert command == "losses"
    for config in made.values():
        assert spaces_of(config).keys() == set(config.loss_names)
    return made


@pytest.mark.parametrize("paper", COUNTED)
def test_no_table_and_no_figure_is_left_out(paper: str) -> None:
    figures, tables = COUNTED[paper]
    wanted = [
        *(f"Figure {number + 1}" for number in range(figures)),
        *(f"Table {number + 1}" for number in range(tables)),
    ]
    listed = [entry.item for entry in papers(paper)[paper].items]
    assert len(set(listed)) == len(listed)
    numbered = [item.partition(" (")[0] for item in listed if not item.startswith("Supplement: ")]
    assert list(dict.fromkeys(numbered)) == wanted
    whole = {item for item in listed if "(" not in item}
    for item in set(wanted) - whole:
        parts = sorted(
            letter
            for entry in listed
            if entry.startswith(f"{item} (")
            for letter in entry[len(item) + 2 : -1].split(", ")
        )
        assert parts == ["a", "b", "c", "d", "e", "f"], item


@pytest.mark.parametrize("line", SMALL)
def test_a_small_command_begins_without_a_data_set_and_is_affordable(line: str, trees: Trees, tmp_path: Path) -> None:
    """It is planned like the command, up to the first training."""
    made = configs_of(line, trees)
    assert sum(images_seen(config) for config in made.values()) < AFFORDABLE
    for command, params in parsed(line):
        if command == "run" and is_campaign(read_file(params["file"])):
            read_campaign_plans(campaign_file(params, trees), tmp_path)
        elif command == "run":
            read_plan(search_of(params, trees), tmp_path)


def columns_shown(line: str, trees: Trees) -> set[str]:
    """Return the metrics in the tables of a line's campaigns; super-categories stand for the classes themselves."""
    runs = [params for command, params in parsed(line) if command == "run"]
    campaigns = [campaign_of(params, trees) for params in runs if is_campaign(read_file(params["file"]))]
    return {metric.replace("_super", "") for campaign in campaigns for metric in campaign.config.table.metrics}


TABLES = [(name, entry) for name, entry in ITEMS if entry.item.startswith(("Table", "Supplement: Inc")) and entry.full]


@pytest.mark.parametrize(("paper", "entry"), TABLES, ids=[f"{name}-{entry.item}" for name, entry in TABLES])
def test_a_small_command_shows_the_columns_of_its_table(paper: str, entry: PaperItem, trees: Trees) -> None:
    assert entry.small
    assert entry.full
    assert columns_shown(entry.small, trees) >= columns_shown(entry.full, trees), f"{paper}, {entry.item}"


@pytest.mark.parametrize("paper", OF_DATA)
def test_a_full_command_is_on_the_data_that_the_caption_names(paper: str, trees: Trees) -> None:
    """Items without a data set have no line here: drawings, formulas, and settings."""
    found = {}
    for entry in papers(paper)[paper].items:
        made = configs_of(entry.full, trees) if entry.full else {}
        if made and not entry.item.startswith("Supplement: "):
            found[entry.item] = " ".join(dict.fromkeys(config.dataset.name for config in made.values()))
    assert found == OF_DATA[paper]


def test_the_bars_of_a_figure_are_those_of_its_caption(trees: Trees) -> None:
    """Thesis, Figures 27 to 31: one network or one size of twelve experiments, ten losses in each."""
    captions = {
        "Figure 27": ({"resnet50"}, {128}),
        "Figure 28": ({"resnet50"}, {64, 128, 512, 1024}),
        "Figure 29": ({"bninception"}, {64, 128, 512, 1024}),
        "Figure 30": ({"googlenet"}, {64, 128, 512, 1024}),
        "Figure 31": ({"resnet50", "bninception", "googlenet"}, {512}),
    }
    items = {entry.item: entry for entry in papers("thesis")["thesis"].items}
    for item, (networks, sizes) in captions.items():
        full = items[item].full
        assert full
        made = configs_of(full, trees).values()
        assert {config.model.backbone for config in made} == networks, item
        assert {config.model.embedding_dim for config in made} == sizes, item
        assert len(made) == len(networks) * len(sizes)
        assert all(len(set(config.loss_names) - {"proxy_push"}) == 10 for config in made)


def test_programs_and_people_get_every_item() -> None:
    assert papers().keys() == COUNTED.keys()
    assert len([entry for _, entry in ITEMS if entry.item.startswith("Supplement: ")]) == 4
    listed = json_of("papers")
    assert len(listed) == len(ITEMS)
    for entry in listed:
        assert entry.keys() >= {"paper", "item", "small", "full", "conceptual"}
        assert entry["paper"]
        assert entry["title"]
        assert len({bool(entry[key]) for key in ("small", "full", "shown")}) == 1, "they stand together"
        assert bool(entry["small"]) + bool(entry["conceptual"]) == 1, entry["item"]
    shown = printed("papers")
    assert all(entry.item in shown for _, entry in ITEMS)
    assert "Psomas" in shown
    assert "Psomas" not in printed("papers", "mpa")
