"""Which loss is the best of a search, and whether that may be chance: on records whose means are known."""

from pathlib import Path

import pytest
from support.made_search import Means, made_search

from search.plan.runs import RunFolder
from search.report.compared import Comparison
from search.report.comparison import compare
from search.report.models import champion
from search.report.results import stored_summary


@pytest.mark.parametrize(
    ("means", "loss", "distinguishable"),
    [
        ({"mpa": (0.4, 0.7), "pnp": (0.4, 0.5)}, "mpa", True),
        ({"mpa": (0.4, 0.5), "pnp": (0.4, 0.7)}, "pnp", True),
        ({"mpa": (0.4, 0.7), "pnp": (0.4, 0.7)}, None, False),
        ({"mpa": (0.4, 0.7), "pnp": (0.4, 0.7), "npair": (0.1, 0.2)}, None, False),
        ({"mpa": (0.7, 0.71), "pnp": (0.7, 0.4)}, "mpa", True),  # of several losses none is held against its default
        ({"mpa": (0.4, 0.7)}, "mpa", True),
        ({"mpa": (0.7, 0.7)}, "mpa", False),
        ({"mpa": (0.7, 0.4)}, "mpa", False),  # it differs from its default, and is worse
    ],
)
def test_the_best_is_told_from_all_others_or_is_not(
    tmp_path: Path, means: Means, loss: str | None, distinguishable: bool
) -> None:
    made_search(tmp_path, "made", means)
    found = champion(of(tmp_path))
    assert found.loss == loss or loss is None
    assert found.distinguishable is distinguishable


def test_before_the_test_the_best_on_validation_classes_is_never_told(tmp_path: Path) -> None:
    made_search(tmp_path, "made", {"mpa": (0.1, 0.2), "pnp": (0.1, 0.9)}, tested=False)
    found = champion(of(tmp_path))
    assert (found.loss, found.distinguishable) == ("pnp", False)


def of(runs: Path) -> Comparison:
    folder = RunFolder(runs, "made")
    return compare([folder], [stored_summary(folder)])
