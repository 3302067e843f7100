"""A campaign's line from the search to the test, of summaries made by hand."""

from pathlib import Path

import pytest
from support.small_search import small_search
from support.summaries import made_loss, made_row, made_summary, plain_statistics

from search.campaigns.comparisons import CONFIRMED, FINAL, SEARCHED, SMALL, TESTED, optimism
from search.campaigns.tables import optimism_sentences
from search.config.campaign import Campaign, parse_campaign
from search.report.results import Summary
from search.report.rows import SeedStatistics
from search.report.statistics import over_seeds
from search.stages import Role

BEST = {"a": 0.9, "b": 0.7}


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


def over_two(mean: float) -> SeedStatistics:
    return over_seeds([mean - 0.01, mean + 0.01])


def summary(name: str, final: float | None = 0.5, objective: str = "map_at_r") -> Summary:
    """A search whose default is a tenth lower, before the trainings for the test."""
    found = {
        "final": None if final is None else over_two(final),
        "test": {objective: over_two(0.2)},
        "test_small": over_two(0.4),
    }
    default = made_row(Role.DEFAULT, search_value=BEST[name] - 0.1, confirmed=plain_statistics(over_two(0.5)), **found)
    tuned = made_row(Role.TUNED, search_value=BEST[name], confirmed=plain_statistics(over_two(0.6)), **found)
    entry = made_loss(default=default, tuned=tuned)
    return made_summary({"mpa": entry}, f"lot-{name}", objective=objective)


def test_it_is_the_mean_over_searches(campaign: Campaign) -> None:
    found = optimism(campaign.config, [summary("a"), summary("b")])
    assert found[Role.TUNED].stages == pytest.approx(
        {SEARCHED: 0.8, CONFIRMED: 0.6, FINAL: 0.5, SMALL: 0.4, TESTED: 0.2}
    )
    assert found[Role.DEFAULT].stages[SEARCHED] == pytest.approx(0.7)
    assert list(optimism_sentences(Role.TUNED, found[Role.TUNED])) == [
        "map_at_r of the tuned configurations, mean of 2: 80.00 in the search, 60.00 confirmed, "
        "50.00 in the trainings for the test, 40.00 on test galleries like validation, 20.00 on the test classes",
        "the drop: +30.00 from the choice, +10.00 from other classes, +20.00 from the larger gallery",
    ]


def test_a_stage_that_one_search_has_not_is_left_out(campaign: Campaign) -> None:
    found = optimism(campaign.config, [summary("a"), summary("b", final=None)])
    assert FINAL not in found[Role.TUNED].stages
    assert len(list(optimism_sentences(Role.TUNED, found[Role.TUNED]))) == 1


def test_different_objectives_have_no_mean(campaign: Campaign) -> None:
    assert optimism(campaign.config, [summary("a"), summary("b", objective="recall_at_1")]) == {}


def test_the_objective_is_always_tested(campaign: Campaign) -> None:
    for member in campaign.members:
        assert member.config.metrics.test == ("recall_at_1",)
        assert member.config.test_metrics == ("recall_at_1", "map_at_r")
