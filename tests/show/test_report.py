"""The report file: complete, escaped and self-contained in every state of a search."""

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml
from plotly import graph_objects
from support.commands import holdout_here
from support.finished_search import finish, run_here
from support.kinds import LOT
from support.small_search import small_search

from search.records.campaign import parse_campaign
from search.records.runs import CampaignFolder

TRAINING = {"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16}
VOID = {"meta", "link", "img", "br", "hr", "input", "wbr"}


class Page(HTMLParser):
    """The elements of a page and their text; raises if they are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif self._open and self._open[-1] != "style":
            self.texts.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def reported(runs: Path, *names: str) -> str:
    holdout_here("report", *names, "--runs", runs, "--output", runs / "out.html")
    return (runs / "out.html").read_text()


def checked(text: str) -> Page:
    """Check that a page is self-contained, that its ids are unique and that every figure has a finding; return it."""
    page = Page(text)
    names = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]
    assert len(names) == len(set(names))
    for name in ("src", "href", "xlink:href"):
        addresses = [attributes[name] or "" for _, attributes in page.elements if attributes.get(name)]
        assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"url\((?!#|&quot;#|\"#|'#)", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    assert len(page.of("figure")) == len(page.of("figcaption"))
    assert all((entry["aria-label"] or "").endswith(".") for entry in page.of("div") if entry.get("class") == "plot")
    for attributes, data in page.scripts:
        if "data-plot" in attributes:
            graph_objects.Figure(json.loads(data))  # raises on unknown properties
    return page


@pytest.fixture(scope="module")
def written(tested: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the finished search, which changes none of its files."""
    runs = Path(shutil.copytree(tested, tmp_path_factory.mktemp("written") / "runs"))
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    assert holdout_here("report", "small", "--runs", runs).stdout.strip() == str(runs / "small/report.html")
    assert {path: path.read_bytes() for path in before} == before
    assert (runs / "small/report.html").stat().st_size < 8e6
    return (runs / "small/report.html").read_text()


def test_a_finished_search_has_every_section(tested: Path, written: str) -> None:
    page = checked(written)
    sections = [entry["id"] for entry in page.of("section")]
    assert sections == ["answer", "comparison", "loss-proxy-anchor", "loss-pnp", "models", "again"]
    links = [entry["href"] for entry in page.of("a")]
    assert [f"#{name}" for name in sections] == links[1:]
    summary = json.loads((tested / "small/summary.json").read_text())
    for entry in summary["losses"].values():
        assert f"{entry['tuned']['test']['map_at_r']['mean'] * 100:.2f}" in page.text
        assert f"{entry['default']['test']['map_at_r']['mean'] * 100:.2f}" in page.text
    assert "1 opening by 1 search" in page.text
    assert written.index("<table>") < written.index('<figure id="test-map_at_r"'), "the answer's table comes first"
    assert "<b onclick" not in written, "names are never markup"
    assert not any("onclick" in attributes for _, attributes in page.elements)


def test_two_searches_are_one_report(copied: Path) -> None:
    """The second has not opened its test."""
    again = yaml.safe_load((copied / "small/search.yaml").read_text())
    finish(copied, {**again, "name": "other.one", "losses": ["pnp"], "stages": ["search", "select"]})
    page = checked(reported(copied, "small", "other.one"))
    assert "small/proxy_anchor" in page.text
    assert "other.one: pnp" in page.text
    text = checked(reported(copied, "other.one")).text
    assert all(f"Test {what}: the test classes are sealed" in text for what in ("results", "values"))


@pytest.mark.parametrize("epochs", [0, 3], ids=["no epoch", "one trial and an epoch"])
def test_a_search_that_has_just_begun(image_folder: Path, tmp_path: Path, epochs: int) -> None:
    content = small_search(image_folder, training=TRAINING, losses=["pnp"], search={"trials": 3})
    for search in run_here(tmp_path, [content], epochs=epochs):
        search.close()
    page = checked(reported(tmp_path, "small"))
    assert "Not yet:" in page.text
    assert not [entry for entry in page.of("p") if entry.get("class") == "missing"], "nothing is wrong"
    if epochs == 0:
        assert "no trial has a value of map_at_r" in page.text
        assert "none finished" in page.text


def test_a_campaign_that_has_just_begun(tmp_path: Path) -> None:
    campaign = parse_campaign(LOT)
    CampaignFolder(tmp_path, campaign.name).begin(campaign.config)
    assert "0 of 3 searches have started" in checked(reported(tmp_path, "lot")).text


def test_an_older_summary_is_made_anew(copied: Path) -> None:
    whole = Page(reported(copied, "small")).text
    path = copied / "small/summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1, "losses": {}}))
    assert Page(reported(copied, "small")).text == whole


def test_results_that_are_gone(copied: Path) -> None:
    for gone in ("test", "trials"):
        shutil.rmtree(copied / "small" / gone)
    assert "Not shown:" in checked(reported(copied, "small")).text
