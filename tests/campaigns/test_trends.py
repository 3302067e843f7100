"""Trends along an axis of numbers, of rows whose scores are made."""

import numpy as np
import pytest
from scipy.stats import linregress

from search.campaigns.comparisons import trends
from search.report.pairs import Comparable
from search.report.rows import RowKey
from search.report.statistics import ScoredRows
from search.stages import Role

KS = ("1", "12", "3", "6")
"""In the order of a file, which is not that of the numbers."""
RISE = {"1": 0.0, "3": 0.02, "6": 0.04, "12": 0.05}


def key_of(loss: str, k: str, network: str) -> RowKey:
    return RowKey(search=f"{network}-{k}", loss=loss, role=Role.TUNED)


@pytest.fixture
def coordinates() -> dict[RowKey, dict[str, str]]:
    return {
        key_of(loss, k, network): {"loss": loss, "network": network, "K": k}
        for loss in ("mpa", "soft_triple")
        for network in ("a", "b")
        for k in KS
    }


@pytest.fixture
def tested(coordinates: dict[RowKey, dict[str, str]]) -> Comparable:
    """With mpa the scores rise with K, with soft_triple they do not."""
    generator = np.random.default_rng(0)
    rows = {
        key: 0.5 + generator.normal(0, 0.01, (3, 1)) + generator.normal(0, 0.02, (3, 30))
        + (RISE[found["K"]] if found["loss"] == "mpa" else 0.0)
        for key, found in coordinates.items()
    }  # fmt: skip
    scored = ScoredRows(rows, np.ones(30, dtype=np.int64))
    return Comparable(metric="recall_at_1", rows=scored, seeds=dict.fromkeys(rows, 3))


def test_what_rises_is_found_and_what_does_not_is_not(
    tested: Comparable, coordinates: dict[RowKey, dict[str, str]]
) -> None:
    found = trends(tested, coordinates, ["K", "network"])
    assert [(trend.coordinates["loss"], trend.coordinates["network"], trend.differ) for trend in found] == [
        ("mpa", "a", True), ("mpa", "b", True), ("soft_triple", "a", False), ("soft_triple", "b", False),
    ]  # fmt: skip
    assert {trend.axis for trend in found} == {"K"}, "networks are no numbers"
    assert found[0].labels == ("1", "3", "6", "12")
    keys = [key_of("mpa", k, "a") for k in found[0].labels]
    means = [tested.rows.contrast({key: 1.0}).value for key in keys]
    assert found[0].change == pytest.approx(3 * linregress(range(4), means).slope)
    low, high = found[0].ci95
    assert low < 0.051 < high
    assert all(trend.p_corrected >= trend.p for trend in found)


def test_two_labels_have_no_trend(tested: Comparable, coordinates: dict[RowKey, dict[str, str]]) -> None:
    seeds = {key: 3 for key, found in coordinates.items() if found["K"] in ("1", "12")}
    assert trends(Comparable(metric="recall_at_1", rows=tested.rows, seeds=seeds), coordinates, ["K"]) == []
