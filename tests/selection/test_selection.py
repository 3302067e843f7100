"""Finalists, confirmations and the frozen selection."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.difference import Family, Recommendation
from search.selection.choice import Confirmation, confirmations, finalists
from search.selection.selection import Selection
from trainables.errors import InvalidInput


def trial(number: int, value: float | None, x: float, **attributes: Any) -> FrozenTrial:
    """Return a stored trial with one parameter x, best in its second epoch."""
    values = [] if value is None else [value / 2, value, value / 3]
    made = create_trial(
        state=TrialState.FAIL if value is None else TrialState.COMPLETE,
        value=value,
        params={"x": x},
        distributions={"x": FloatDistribution(0, 10)},
        user_attrs={
            **{
                f"epoch:{n:06d}": {"epoch": n, "metrics": {"m": trial_value}, "checkpoint": best}
                for n, (trial_value, best) in enumerate(zip(values, ("1", "2", None), strict=False), start=1)
            },
            **attributes,
        },
        intermediate_values={} if value is None else {1: value / 2, 2: value, 3: value},
    )
    made.number = number
    return made


def confirmation(number: int, *values: float, failed: int = 0) -> Confirmation:
    return Confirmation(
        number=number,
        params={"x": number},
        searched=(1.0,),
        values=values,
        classes={"a": values[0], "b": values[-1]},
        best_epochs=(2,) * len(values),
        failed=failed,
    )


FAMILY = Family(
    metrics=frozenset({"recall_at_1"}),
    rows=frozenset({("s", "mpa", "default"), ("s", "mpa", "tuned")}),
    pairs=frozenset({frozenset({("s", "mpa", "default"), ("s", "mpa", "tuned")})}),
)


def selection(**changes: Any) -> Selection:
    content: dict[str, Any] = {
        "id": "1", "search": "s", "objective": "map_at_r", "test_metrics": ("recall_at_1",), "family": FAMILY,
        "split_digest": "a", "test_digest": "b", "studies": {"s/mpa": "c"},
        "rule": "the best", "exported": "the first",
        "chosen": {"mpa": confirmation(3, 0.5, 0.7)}, "defaults": {"mpa": confirmation(0, 0.4)},
        "reasons": {"mpa": "best"}, "recommended": Recommendation(loss="mpa", number=3, basis="chosen"),
        "trained_on_opened": None, "baselines": None,
    }  # fmt: skip
    return Selection(**{**content, **changes})


def test_finalists_are_the_best_that_differ_and_the_default() -> None:
    trials = [
        trial(0, 0.1, 1), trial(1, 0.9, 2), trial(2, 0.9, 2), trial(3, 0.8, 3), trial(4, None, 4), trial(5, 0.7, 5),
    ]  # fmt: skip
    assert [entry.number for entry in finalists(trials, 2)] == [1, 3, 0]
    assert [entry.number for entry in finalists(trials[:1], 2)] == [0]
    assert finalists([trial(0, None, 1)], 2) == []
    assert [entry.number for entry in finalists([trial(0, None, 1), trial(1, 0.3, 2)], 2)] == [1, 0], "a failed default"


def test_replicates_count_by_their_mean() -> None:
    trials = [trial(0, 0.2, 1), trial(1, 0.9, 2), trial(2, 0.7, 3), trial(3, 0.1, 2), trial(4, 0.6, 1)]
    assert [entry.number for entry in finalists(trials, 2)] == [2, 1, 0]
    found = confirmations(trials, [], [0, 1, 2], "map_at_r")
    assert [fmean(found[number].searched) for number in (0, 1, 2)] == pytest.approx([0.4, 0.5, 0.7])


def test_an_unlucky_replicate_that_was_pruned_counts() -> None:
    """It is as far below the complete ones at the end as it was when it was pruned."""
    unlucky = create_trial(
        state=TrialState.PRUNED,
        value=0.25,
        params={"x": 2},
        distributions={"x": FloatDistribution(0, 10)},
        user_attrs={"params": {"x": 2}},
        intermediate_values={1: 0.25},
    )
    unlucky.number = 3
    trials = [trial(0, 0.2, 1), trial(1, 0.9, 2), trial(2, 0.8, 3), unlucky]
    found = confirmations(trials, [], [1], "m")[1]
    assert found.searched == pytest.approx((0.9, 0.25 + 0.9 - 0.45))
    assert [entry.number for entry in finalists([*trials, trial(4, 0.81, 3)], 1)] == [2, 0]
    assert [entry.number for entry in finalists(trials, 5)] == [1, 2, 0]


def test_confirmations_gather_the_seeds() -> None:
    searched = [trial(0, 0.1, 1), trial(1, 0.9, 2)]
    confirmed = [
        trial(0, 0.5, 2, source_trial=1, seed=5),
        trial(1, None, 2, source_trial=1, seed=6),
        trial(2, 0.2, 1, source_trial=0, seed=5),
    ]
    entry = confirmations(searched, confirmed, [1], "m")[1]
    assert (entry.values, entry.failed, entry.best_epochs, entry.params) == ((0.5,), 1, (2,), {"x": 2})
    assert entry.median_best_epoch == 2
    halves = [trial(half, (0.3, 0.5)[half], 2, source_trial=1, seed=5, half=half + 1) for half in range(2)]
    entry = confirmations(searched, halves, [1], "m")[1]
    assert (entry.values, entry.classes, entry.failed) == ((pytest.approx(0.4),), {}, 0), "without values by class"


def of_half(number: int, value: float | None, classes: dict[str, float], **attributes: Any) -> FrozenTrial:
    """Return a trial of configuration 2 whose second epoch, the best one, has ``classes``; its first, other values."""
    made = trial(number, value, 2, source_trial=1, **attributes)
    for epoch, values in ((1, dict.fromkeys(classes, 0.01)), (2, classes)):
        if value is not None:
            made.user_attrs[f"epoch:{epoch:06d}"]["classes"] = values
    return made


def test_a_seed_counts_with_both_of_its_halves() -> None:
    searched = [trial(0, 0.1, 1), trial(1, 0.9, 2)]
    confirmed = [
        of_half(0, 0.9, {"a": 0.2, "b": 0.4}, seed=5, half=1),
        of_half(1, 0.9, {"c": 0.9}, seed=5, half=2),
        of_half(2, 0.9, {"a": 0.4, "b": 0.5}, seed=6, half=1),
        of_half(3, 0.9, {"c": 0.6}, seed=6, half=2),
        of_half(4, 0.9, {"a": 1.0, "b": 1.0}, seed=7, half=1),
        of_half(5, None, {}, seed=7, half=2),
    ]
    entry = confirmations(searched, confirmed, [1], "m")[1]
    assert entry.values == pytest.approx((1.5 / 3, 1.5 / 3))
    assert entry.classes == pytest.approx({"a": 0.3, "b": 0.45, "c": 0.75})
    assert (entry.failed, entry.best_epochs) == (1, (2, 2, 2, 2))


def test_a_selection_is_read_back_and_an_edited_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    with pytest.raises(InvalidInput, match="Nothing is selected yet"):
        Selection.load(path)
    selection().save(path)
    assert Selection.load(path) == selection()
    content = json.loads(path.read_text())
    content["chosen"]["mpa"]["params"] = {"x": 9}
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInput, match="was changed after it was frozen"):
        Selection.load(path)
