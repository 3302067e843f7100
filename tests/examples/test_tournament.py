"""The tournament of losses, on the thesis's own numbers, and of a campaign over data sets."""

import math
from fractions import Fraction

import numpy as np
import pandas
import pytest
from scipy.stats import chi2, rankdata

from examples.papers.tournament import Tournament, scores_of, tournament

LOSSES = (
    "Contrastive", "Triplet", "LiftedStructure", "NPair", "ProxyNCA", "Margin", "ArcFace", "MultiSimilarity",
    "SoftTriple", "ProxyAnchor",
)  # fmt: skip
RECALL_AT_1 = {  # Psomas, Metric Learning: A Deep Dive, Tables 6 to 8: CUB-200-2011, test Recall@1 in per cent
    "ResNet50 64": (60.28, 57.56, 58.36, 57.28, 60.25, 59.66, 58.32, 60.84, 61.28, 62.93),
    "ResNet50 128": (62.64, 60.48, 60.16, 58.91, 62.76, 63.00, 61.33, 63.96, 64.16, 66.71),
    "ResNet50 512": (64.87, 63.52, 65.92, 61.36, 65.22, 64.99, 64.40, 68.69, 67.27, 69.48),
    "ResNet50 1024": (66.51, 63.55, 66.34, 61.83, 65.12, 65.48, 65.82, 68.72, 67.42, 69.82),
    "BNInception 64": (58.88, 55.82, 58.29, 54.17, 56.98, 56.80, 55.77, 57.24, 58.07, 61.06),
    "BNInception 128": (61.24, 58.56, 61.60, 56.90, 60.15, 60.80, 59.94, 61.92, 63.44, 63.88),
    "BNInception 512": (63.28, 61.98, 64.28, 59.90, 63.84, 63.48, 62.36, 65.24, 66.76, 68.11),
    "BNInception 1024": (64.43, 62.45, 64.86, 60.76, 64.10, 64.08, 63.07, 66.22, 67.44, 68.47),
    "GoogLeNet 64": (56.36, 52.12, 55.18, 48.76, 51.01, 54.27, 52.92, 53.47, 55.00, 58.07),
    "GoogLeNet 128": (57.73, 55.06, 58.07, 50.30, 55.77, 57.88, 56.94, 55.66, 57.00, 60.23),
    "GoogLeNet 512": (61.01, 57.60, 60.89, 54.22, 57.46, 60.61, 61.60, 59.57, 60.90, 63.84),
    "GoogLeNet 1024": (62.05, 58.54, 61.77, 55.40, 57.60, 59.55, 62.24, 61.16, 61.55, 64.47),
}
TABLE_11 = {  # total, mean, deviation; the thesis rounds some down and prints 8.85 for the Triplet's 103 / 12
    "ProxyAnchor": (12, 1, 0), "SoftTriple": (38, 3.16, 1.19), "MultiSimilarity": (51, 4.25, 2.05),
    "Contrastive": (52, 4.33, 1.72), "LiftedStructure": (54, 4.5, 1.89), "Margin": (70, 5.83, 1.27),
    "ArcFace": (79, 6.58, 2.31), "ProxyNCA": (81, 6.75, 1.66), "Triplet": (103, 8.58, 0.51), "NPair": (120, 10, 0),
}  # fmt: skip


@pytest.fixture(scope="module")
def thesis() -> Tournament:
    return tournament(pandas.DataFrame(RECALL_AT_1, index=LOSSES))


def test_table_11_of_the_thesis(thesis: Tournament) -> None:
    table = thesis.summary()
    assert list(table.index) == list(TABLE_11)
    assert thesis.ranks.shape == (10, 12)
    for loss, (total, mean, deviation) in TABLE_11.items():
        assert table["sum"][loss] == total
        assert table["mean"][loss] == pytest.approx(mean, abs=0.01)
        assert table["deviation"][loss] == pytest.approx(deviation, abs=0.01)
    assert table["wins"]["ProxyAnchor"] == 12


def test_ties_share_their_ranks() -> None:
    found = tournament(pandas.DataFrame({"one": {"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}}))
    assert found.ranks["one"].to_dict() == dict(zip("abcd", rankdata([-0.5, -0.7, -0.5, -0.1]).tolist(), strict=True))
    assert found.ranks["one"]["a"] == 2.5


def test_what_the_ranks_of_the_thesis_say(thesis: Tournament) -> None:
    """Friedman's statistic by its definition, and Nemenyi's quantile of ten: 3.164 (Demšar 2006, Table 5)."""
    statistic = 12 * 12 / (10 * 11) * ((thesis.ranks.mean(axis=1) ** 2).sum() - 10 * 11**2 / 4)
    assert thesis.p == pytest.approx(chi2.sf(statistic, 9))
    assert thesis.critical_difference == pytest.approx(3.164 * math.sqrt(10 * 11 / (6 * 12)), rel=1e-3)
    assert thesis.sentence().startswith("Friedman's p 0.000; losses differ if their mean ranks are 3.91 or more apart")


def test_equal_losses_do_not_look_ranked() -> None:
    generator = np.random.default_rng(0)
    rejected = apart = 0
    for _ in range(300):
        found = tournament(pandas.DataFrame(generator.normal(size=(10, 8))))
        assert found.p is not None
        assert found.critical_difference is not None
        means = found.ranks.mean(axis=1)
        rejected += found.p <= 0.05
        apart += means.max() - means.min() >= found.critical_difference
    assert max(rejected, apart) <= 0.09 * 300  # 5 in 100 and three standard errors


@pytest.mark.parametrize(
    "scores", [np.eye(4, 2), np.eye(2, 5), np.full((3, 4), 0.5)], ids=["few settings", "few losses", "ties"]
)
def test_too_few_or_equal_ranks_say_nothing(scores: np.ndarray) -> None:
    found = tournament(pandas.DataFrame(scores))
    assert found.p is None
    assert found.sentence() == "Too few losses or settings to test the ranks, or all losses tie."


DATA, SIZES, NAMES = ("first", "second", "third"), ("8", "16"), ("pnp", "proxy_anchor", "contrastive")


def made_cells(numbers: list[float | None]) -> pandas.DataFrame:
    keys = [(loss, data, size) for data in DATA for size in SIZES for loss in NAMES]
    cells = pandas.DataFrame(keys, columns=["loss", "data", "size"])
    return cells.assign(mean=np.array(numbers, dtype=float))


def test_a_score_is_the_mean_over_the_other_axes() -> None:
    """By exact fractions; a cell without a number leaves no tournament."""
    numbers = [0.5, 0.4, 0.3, 0.1, 0.3, 0.2, 0.6, 0.6, 0.1, 0.2, 0.4, 0.2, 0.3, 0.5, 0.1, 0.7, 0.3, 0.2]
    found = tournament(scores_of(made_cells(numbers), ["data", "size"], ["data"]))
    for place, data in enumerate(DATA):
        first, second = numbers[6 * place : 6 * place + 3], numbers[6 * place + 3 : 6 * place + 6]
        sums = [Fraction(str(a)) + Fraction(str(b)) for a, b in zip(first, second, strict=True)]
        expected = [sum(other > own for other in sums) + (sums.count(own) + 1) / 2 for own in sums]
        assert found.ranks[data][[*NAMES]].tolist() == expected
    assert scores_of(made_cells([*numbers[:-1], None]), ["data", "size"], ["data"]).empty


def test_rows_are_ranked_where_searches_share_no_losses() -> None:
    cells = made_cells([0.5, 0.4, 0.3, 0.1, 0.3, 0.2] * 3)
    other = cells[(cells["loss"] != "pnp") == (cells["size"] == "8")]
    scores = scores_of(other, ["data", "size"], ["data"])
    assert set(scores.index) == {"proxy_anchor 8", "contrastive 8", "pnp 16"}
    assert scores_of(other.drop(other.index[0]), ["data", "size"], ["data"]).shape == (2, 3)
