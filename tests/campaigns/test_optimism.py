"""A campaign's line from the search to the test, of summaries made by hand."""

from pathlib import Path
from typing import Any

import pytest
from conftest import small_search

from search.campaigns.campaign import Campaign, parse_campaign
from search.campaigns.results.optimism import optimism, optimism_told

SEARCHED = {"a": 0.9, "b": 0.7}


@pytest.fixture
def campaign(image_folder: Path) -> Campaign:
    base = {key: value for key, value in small_search(image_folder, losses=["mpa"]).items() if key != "name"}
    return parse_campaign(
        {
            "name": "lot",
            "study": "seeds",
            "base": base,
            "vary": {"seed": {"a": {"search.seed": 0}, "b": {"search.seed": 1}}},
            "table": {"rows": ["seed"]},
        }
    )


def summary(name: str, final: float | None = 0.5, objective: str = "map_at_r") -> dict[str, Any]:
    """A search whose default is a tenth lower, before the trainings for the test."""
    final_mean = None if final is None else {"mean": final}
    tested = {objective: {"mean": 0.2}}
    chosen = {"params": {}, "number": 1, "search_value": SEARCHED[name], "mean": 0.6}
    default = {"params": {}, "value": SEARCHED[name] - 0.1, "confirmed": {"mean": 0.5}, "final": final_mean}
    entry = {"default": {**default, "test": tested}, "best": None, "confirmed": chosen, "final": final_mean}
    entry["test"] = tested
    return {"name": f"lot-{name}", "objective": objective, "losses": {"mpa": entry}}


def test_it_is_the_mean_over_searches(campaign: Campaign) -> None:
    found = optimism(campaign, [summary("a"), summary("b")])
    assert found["chosen"] == pytest.approx(
        {"objective": "map_at_r", "count": 2, "search": 0.8, "confirmed": 0.6, "final": 0.5, "test": 0.2}
    )
    assert found["default"]["search"] == pytest.approx(0.7)
    assert list(optimism_told(found))[1] == (
        "map_at_r of the chosen configurations, mean of 2: 80.00 in the search, 60.00 confirmed, "
        "50.00 in the trainings for the test, 20.00 on the test classes"
    )


def test_a_stage_that_one_search_has_not_is_left_out(campaign: Campaign) -> None:
    found = optimism(campaign, [summary("a"), summary("b", final=None)])
    assert found["chosen"]["final"] is None
    assert "in the trainings" not in list(optimism_told(found))[1]


def test_different_objectives_have_no_mean(campaign: Campaign) -> None:
    assert optimism(campaign, [summary("a"), summary("b", objective="recall_at_1")]) == {}


def test_the_objective_is_always_tested(campaign: Campaign) -> None:
    for member in campaign.members:
        assert member.config.metrics.test == ("recall_at_1",)
        assert member.config.test_metrics == ("recall_at_1", "map_at_r")
