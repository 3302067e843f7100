"""The report, the live page and MLflow in a real browser, without errors and with every picture drawn."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support.browser import browser_page, seen
from support.commands import command, holdout_here, plain, summary, write_search
from support.finished_search import finish
from support.services import MlflowServer
from support.serving import served
from support.small_search import draw_folder, small_search

from search.records.runs import RunFolder

pytestmark = pytest.mark.browser
TRAINING = {"epochs": 3, "batch_size": 20, "images_per_class": 5, "image_size": 16}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search, with its report."""
    folder = tmp_path_factory.mktemp("browser")
    images = draw_folder(folder / "images", classes=14)
    content = small_search(images, training=TRAINING, search={"trials": 10}, final={"seeds": 2})
    finish(folder / "runs", content)
    holdout_here("report", "small", "--runs", folder / "runs")
    return folder / "runs"


@pytest.fixture
def address(runs: Path) -> str:
    return RunFolder(runs, "small").report.as_uri()


def test_names_of_classes_and_files_are_text(tmp_path: Path) -> None:
    """In the report and on the live page; the content security policy also stops injected scripts."""
    images = draw_folder(tmp_path / "images", classes=16)
    for number, folder in enumerate(sorted(images.iterdir())):
        name = ("<img src=x onerror=document.title='owned'>", "{{7*7}}\x1b[2J", "<svg onload=document.title='owned'>")
        for image in folder.iterdir():
            image.rename(folder / f"{image.stem}<img src=x onerror=document.title='owned'>.png")
        folder.rename(images / f"{number:02d} {name[number % 3]}")
    runs = tmp_path / "runs"
    finish(runs, small_search(images, training=TRAINING, search={"trials": 2}))
    report = RunFolder(runs, "small").report
    holdout_here("report", "small", "--runs", runs)
    with browser_page(1400) as page:
        page.goto(report.as_uri())
        seen(page)
        assert "owned" not in page.title()
        assert "<img src=x onerror=document.title='owned'>" in page.content().replace("&lt;", "<").replace("&gt;", ">")
    with served(runs) as server, browser_page(1400) as page:
        page.goto(f"{server[2]}searches/small")
        page.wait_for_selector("#answer", timeout=120_000)
        seen(page)
        assert page.title() == "small"
    attack = "<img src=x onerror=\"document.title='owned'\"><script>document.title = 'owned'</script>"
    report.write_text(report.read_text().replace("<main>", f"<main>{attack}"))
    with browser_page(1400, ours=False) as page:
        page.goto(report.as_uri())
        page.wait_for_timeout(1000)
        assert "owned" not in page.title()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_every_picture_is_drawn_within_the_page(address: str, width: int, scheme: str) -> None:
    with browser_page(width, color_scheme=scheme) as page:
        page.goto(address)
        seen(page)
        assert page.evaluate("document.documentElement.scrollWidth") == width
        empty = page.evaluate(
            "[...document.querySelectorAll('figure')].filter(figure => {"
            " const picture = figure.querySelector('.plot .main-svg, img');"
            " return !picture || picture.getBoundingClientRect().height < 40; }).map(figure => figure.id)"
        )
        assert empty == []
        undrawn = page.evaluate(
            "[...document.querySelectorAll('.plot')].filter(plot => !plot.querySelector("
            "'.scatterlayer .trace, .barlayer .trace, .heatmaplayer image')).map(plot => plot.id)"
        )
        assert undrawn == []
        cut = page.evaluate(
            "[...document.querySelectorAll('section:not(#comparison) > .scroll')]"
            ".filter(table => table.scrollWidth > table.clientWidth).map(table => table.getAttribute('aria-label'))"
        )
        assert cut == []
        ink, paper = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        assert (sum(map(int, re.findall(r"\d+", ink))) > sum(map(int, re.findall(r"\d+", paper)))) == (scheme == "dark")


def test_a_reader_hovers_opens_sorts_and_hides_a_loss(address: str) -> None:
    with browser_page(1400) as page:
        page.goto(address)
        seen(page)
        page.locator("#anytime").scroll_into_view_if_needed()
        page.locator("#plot-anytime .point").last.hover(force=True)
        page.wait_for_selector("#plot-anytime .hoverlayer .hovertext")
        numbers = page.locator("#test-map_at_r details")
        numbers.locator("summary").focus()
        page.keyboard.press("Enter")
        heading = numbers.locator("th", has_text="map_at_r").first
        heading.locator("button").click()
        column = [float(text) for text in numbers.locator("tbody tr td:nth-child(2)").all_inner_texts()]
        assert column == sorted(column, reverse=True)
        assert heading.get_attribute("aria-sort") == "descending"
        page.locator("#plot-anytime .legendtoggle").first.click()
        page.wait_for_function("document.querySelector('#loss-proxy-anchor').classList.contains('off')")
        assert not any(found.is_visible() for found in page.locator("[data-loss='proxy_anchor']").all())


def test_the_live_page_moves_while_a_search_runs(tmp_path: Path) -> None:
    """A real search on Ray: its page shows trials, keeps opened tables, and ends with the test."""
    images = draw_folder(tmp_path / "images", classes=14)
    content = small_search(images, training={**TRAINING, "epochs": 60}, search={"trials": 6}, final={"seeds": 2})
    file, runs = write_search(tmp_path / "small.yaml", content), tmp_path / "runs"
    runs.mkdir()
    said = subprocess.DEVNULL
    with served(runs) as (_, _, start), browser_page(1000) as page:  # a browser may take longer to start than a search
        page.goto(start)
        with subprocess.Popen(command("run", file, "--runs", runs), stdout=said, stderr=said) as search:
            try:
                page.get_by_role("link", name="small").click(timeout=120_000)
                page.wait_for_selector(".trial circle", timeout=120_000)
                counts = set()
                while search.poll() is None:
                    counts.add(page.locator("#status").inner_text())
                    time.sleep(1)
                assert len(counts) > 5
                page.wait_for_function(
                    "document.getElementById('status').innerText.startsWith('tested')", timeout=30_000
                )
                page.locator("#test-map_at_r").scroll_into_view_if_needed(timeout=60_000)  # figures are drawn in sight
                page.wait_for_selector("#test-map_at_r svg", timeout=60_000)
                page.locator("#test-map_at_r summary").click()
                page.wait_for_timeout(12_000)  # the page has fetched the report again
                assert page.locator("#test-map_at_r details[open]").count() == 1
            finally:
                search.kill()
    assert search.returncode == 0


def test_mlflow_shows_the_test_values_on_its_first_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page that `holdout sync` prints while the server runs has a row per loss with its test value."""
    shutil.copytree(runs, tmp_path / "runs")
    losses = summary(tmp_path / "runs", "small")["losses"]
    test = {loss: entry["tuned"]["test"]["map_at_r"]["mean"] for loss, entry in losses.items()}
    server = MlflowServer(tmp_path / "runs")
    for module in ("search.driver.synchronise", "search.addresses"):
        monkeypatch.setattr(f"{module}.LOCAL_SERVER", server.url)
    try:
        server.start()
        told = holdout_here("sync", "small", "--runs", tmp_path / "runs")
        link = re.search(rf"{server.url}/#/\S+", told.stdout + plain(told.stderr))
        assert link
        with browser_page(1400, ours=False) as page:
            page.goto(link[0])
            for loss, mean in test.items():
                page.wait_for_selector(f"text={loss}", timeout=60_000)
                assert f"{mean:.3f} [" in page.inner_text("body")
            assert page.locator("text=/^(recommended|(confirmed|test) map_at_r)$/").count() == 3
    finally:
        server.stop()
