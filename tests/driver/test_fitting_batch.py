"""A batch size that a file does not give is the largest that the training classes fill; a given one is kept."""

from pathlib import Path
from typing import Any

import pytest
from support.refusals import sentences_of
from support.small_search import draw_folder, small_search

from search.driver.campaigns import verify_campaign
from search.driver.make_plan import read_campaign_plans, read_plan
from search.driver.verify import Check
from search.records.runs import CampaignFolder
from search.records.writable import open_search
from trainables.data.batch_samplers import batch_problems

NOT_GIVEN = {"epochs": 1, "image_size": 16}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return draw_folder(tmp_path / "images")  # 6 classes train, 2 validate


@pytest.mark.parametrize(
    ("training", "by_loss", "size"),
    [
        ({}, {}, 30),
        ({"sampler": "random"}, {}, 60),
        ({"sampler": "up_to", "images_per_class": 3}, {}, 18),
        ({}, {"pnp": {"images_per_class": 4, "batch_size": 8}}, 30),
    ],
)
def test_the_largest_batch_that_fits(
    root: Path, tmp_path: Path, training: dict[str, Any], by_loss: dict[str, Any], size: int
) -> None:
    content = small_search(root, training={**NOT_GIVEN, **training}, training_by_loss=by_loss)
    plan = read_plan(content, tmp_path / "runs")
    assert plan.config.training.batch_size == size
    assert f"training.batch_size: {size}, the largest batch that 6 training classes fill" in " ".join(plan.notices)
    each = [plan.config.training_of(loss) for loss in plan.config.loss_names]
    assert not any(batch_problems(of.sampler, [10] * 6, of.batch_size, of.images_per_class) for of in each)


def test_of_folds_it_fits_the_smallest_and_a_default_that_fits_is_not_mentioned(root: Path, tmp_path: Path) -> None:
    plan = read_plan(small_search(root, training=NOT_GIVEN, split={"folds": 2}), tmp_path / "runs")
    assert plan.config.training.batch_size == 4 * 5
    plan = read_plan(small_search(draw_folder(tmp_path / "many", 60, 2), training=NOT_GIVEN), tmp_path / "runs")
    assert plan.config.training.batch_size == 120
    assert "batch_size" not in " ".join(plan.notices)


def test_what_cannot_be_filled_is_refused(root: Path, tmp_path: Path) -> None:
    content = small_search(root, training={**NOT_GIVEN, "images_per_class": 500})
    (found,) = sentences_of(lambda: read_plan(content, tmp_path / "runs"))
    assert found.startswith("training: batch_size must be at least 2 and images_per_class (500), not 120")


def test_a_search_keeps_its_batch_when_it_is_resumed_and_extended(root: Path, tmp_path: Path) -> None:
    content, runs = small_search(root, losses=["pnp"], training=NOT_GIVEN), tmp_path / "runs"
    open_search(read_plan(content, runs)).close()
    grown = {**content, "losses": ["pnp", "triplet"]}
    assert read_plan(grown, runs).config.training.batch_size == 30
    fixed = {**grown, "training": {**NOT_GIVEN, "batch_size": 20}}
    (found,) = sentences_of(lambda: read_plan(fixed, runs))
    assert found.startswith("training.batch_size: the search small began with 30 and the file now says 20")


def test_a_campaign_verifies_with_fitted_batches(root: Path, tmp_path: Path) -> None:
    base = {key: value for key, value in small_search(root, training=NOT_GIVEN).items() if key != "name"}
    vary, table = {"ratio": {"wide": {"split.ratio": 0.75}}}, {"rows": ["loss"]}
    content = {"name": "lot", "study": "Wide splits.", "base": base, "vary": vary, "table": table}
    campaign, (plan,) = read_campaign_plans(content, tmp_path)
    open_search(plan).close()
    (folder := CampaignFolder(tmp_path, "lot")).begin(campaign.config)
    assert next(verify_campaign(folder)) == Check("lot-wide: its file, from campaign.yaml")
