"""The warning where compared rows differ in the network or its images, which the thesis criticises in section 3.5.1."""

from pathlib import Path
from typing import Any

import pytest
from support.commands import holdout_here, plain
from support.finished_search import finish
from support.small_search import GLYPHS

from search.plan.runs import RunFolder
from search.report.comparison import compare, unlike_told
from search.report.comparison_tables import as_csv, headline_tables, text_tables
from search.report.formats import sentence as sentence_of
from search.report.results import Summary
from search.report.sections.answer import answer
from search.text_table import as_markdown

UNLIKE = "rows differ in more than the loss, which may explain their differences: "
FILES: dict[str, dict[str, Any]] = {
    "plain": {"losses": ["proxy_anchor", "pnp"]},
    "same": {"losses": ["pnp"], "training": {"lr": 1e-4}},
    "gem": {"losses": ["pnp"], "model": {"pooling": "gem"}, "training": {"image_size": 20}},
    "by-loss": {"losses": ["proxy_anchor", "pnp"], "space": {"pnp": {"model": {"pooling": "gem"}}}},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Searches of one epoch whose files differ."""
    runs = tmp_path_factory.mktemp("unlike") / "runs"
    base = {**GLYPHS, "search": {"trials": 1}, "stages": ["search"]}
    for name, changes in FILES.items():
        model = {**base["model"], **changes.get("model", {})}
        content = {**base, **changes, "name": name, "model": model}
        finish(runs, {**content, "training": {**base["training"], **changes.get("training", {})}})
    return runs


def told(runs: Path, *names: str) -> list[str]:
    folders = [RunFolder(runs, name) for name in names]
    return [*unlike_told(folders, [row for folder in folders for row in Summary.load(folder.summary).rows])]


def test_searches_and_losses_that_differ_are_named(runs: Path) -> None:
    assert told(runs, "plain") == told(runs, "plain", "same") == []
    assert told(runs, "plain", "gem", "same") == [
        f"{UNLIKE}model.pooling is avg in plain, same, but gem in gem; "
        "training.image_size is 16 in plain, same, but 20 in gem"
    ]
    assert told(runs, "by-loss") == [f"{UNLIKE}model.pooling is avg in proxy_anchor, but gem in pnp"]
    assert told(runs, "by-loss", "same") == [
        f"{UNLIKE}model.pooling is avg in by-loss/proxy_anchor, same, but gem in by-loss/pnp"
    ]


def test_a_searched_network_is_that_of_the_row(runs: Path) -> None:
    folders = [RunFolder(runs, "same")]
    rows = {row.role: row for row in Summary.load(folders[0].summary).rows}
    gem = rows["tuned"].model_copy(update={"params": {**(rows["tuned"].params or {}), "model.pooling": "gem"}})
    assert [*unlike_told(folders, [rows["default"], gem])] == [
        f"{UNLIKE}model.pooling is avg in pnp default, but gem in pnp tuned"
    ]


def test_every_output_shows_the_warning(runs: Path) -> None:
    folders = [RunFolder(runs, name) for name in ("plain", "gem")]
    found = compare(folders, [Summary.load(folder.summary) for folder in folders])
    (sentence,) = told(runs, "plain", "gem")
    for tables in (text_tables, headline_tables):
        assert any(sentence in table.notes for table in tables(found))
    assert sentence.replace("_", "\\_") in as_markdown(text_tables(found))
    assert sentence not in as_csv(found)
    assert sentence_of(sentence) in answer(found, folders).remarks
    assert sentence in " ".join(plain(holdout_here("compare", "plain", "gem", "--runs", runs).stdout).split())
