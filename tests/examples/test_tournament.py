"""The tournament of losses, also of a campaign over data sets; on the thesis's numbers in `test_published.py`."""

from fractions import Fraction

import numpy as np
import pandas
import pytest
from scipy.stats import rankdata

from examples.papers.tournament import scores_of, tournament


def test_ties_share_their_ranks() -> None:
    found = tournament(pandas.DataFrame({"one": {"a": 0.5, "b": 0.7, "c": 0.5, "d": 0.1}}))
    assert found.ranks["one"].to_dict() == dict(zip("abcd", rankdata([-0.5, -0.7, -0.5, -0.1]).tolist(), strict=True))
    assert found.ranks["one"]["a"] == 2.5


def test_equal_losses_do_not_look_ranked() -> None:
    generator = np.random.default_rng(0)
    rejected = apart = 0
    for _ in range(40):
        found = tournament(pandas.DataFrame(generator.normal(size=(10, 8))))
        assert found.p is not None
        assert found.critical_difference is not None
        means = found.ranks.mean(axis=1)
        rejected += found.p <= 0.05
        apart += means.max() - means.min() >= found.critical_difference
    assert max(rejected, apart) <= 0.15 * 40  # 5 in 100 and three standard errors


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
