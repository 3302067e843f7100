"""A finished search of two losses, made once for a module."""

from pathlib import Path

import pytest
from support.finished_search import finish
from support.small_search import draw_glyphs, small_search
from support.tampered import Copied

from search.config.search_config import parse_config
from search.driver.make_plan import make_plan
from search.records.ledger import Ledger

TRAINING = {"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_glyphs(tmp_path_factory.mktemp("glyphs") / "images", each=5)


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search, beside another that opened no test; tests must not change it."""
    few = {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}, "search": {"trials": 6}}
    content = small_search(images, training=TRAINING, metrics={"test": ["recall_at_1", "map_at_r", "nmi"]}, **few)
    plan = make_plan(parse_config(content), tmp_path_factory.mktemp("finished") / "runs")
    Ledger(plan.folder.openings).begin("other", [plan.split.test_digest])
    return finish(plan.folder.runs, content)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Copied:
    return Copied(finished, tmp_path / "runs")
