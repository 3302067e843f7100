"""A finished search whose records the tests of this folder change."""

from pathlib import Path

import pytest
from support.finished_search import finish
from support.small_search import small_search
from support.tampered import Copied


@pytest.fixture(scope="session")
def finished(image_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the runs folder of a finished search, not to be changed."""
    content = small_search(
        image_folder,
        training={"epochs": 2, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        losses=["proxy_anchor"],
        search={"trials": 2},
        selection={"finalists": 1, "seeds": 1},
        final={"seeds": 1},
    )
    return finish(tmp_path_factory.mktemp("finished") / "runs", content)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Copied:
    """Return a copy of it."""
    return Copied(finished, tmp_path / "runs")
