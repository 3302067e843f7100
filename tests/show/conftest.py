"""A finished search that the tests of reports share."""

import shutil
from pathlib import Path

import pytest
from support.finished_search import finish
from support.small_search import draw_glyphs, small_search

MARKUP = "<b onclick=alert(1)>&amp; $x_1$ <script>"


@pytest.fixture(scope="session")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search of two losses in two folds, beside its images; not to be changed.

    Its test classes have markup in their names, and the last one has a single image.
    """
    folder = tmp_path_factory.mktemp("tested")
    root = draw_glyphs(folder / "images")
    for number, images in enumerate(sorted(root.iterdir())):
        suffix = "" if number < 8 else " alone" if number == 15 else f" {MARKUP}"
        images.rename(root / f"class-{number:02d}{suffix}")
    for image in sorted((root / "class-15 alone").iterdir())[1:]:
        image.unlink()
    content = small_search(
        root,
        training={"epochs": 1, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        search={"trials": 2, "seed": 1},
        selection={"finalists": 2, "seeds": 1, "better_by": 0.0},
        split={"folds": 2},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        return finish(folder / "runs", content)


@pytest.fixture
def copied(tested: Path, tmp_path: Path) -> Path:
    """A copy of its runs folder, which a test may change."""
    return Path(shutil.copytree(tested, tmp_path / "runs"))
