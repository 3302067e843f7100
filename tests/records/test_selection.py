"""Finalists, confirmations, the choice between them, the recommendation, and the frozen selection."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy import stats

from search.difference import Basis, Difference, Family, Recommendation, RowKey
from search.goal import Constraint, Goal
from search.records.selection import (
    Confirmation,
    Selection,
    choose,
    confirmations,
    finalists,
    recommend,
)
from search.stages import Role
from trainables.common.errors import InvalidInput


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


# The choice between finalists and default.

BASIS = Basis(
    objective="map_at_r", validation="on the 4 validation classes", confirmation="on both halves", better_by=1.0
)
DEFAULT = {"x": 0}


def confirmed(number: int, classes: Sequence[float], searched: float = 0.5, failed: int = 0) -> Confirmation:
    return Confirmation(
        number=number,
        params={"x": number},
        searched=(searched,),
        values=(float(np.mean(classes)),) if len(classes) else (),
        classes={f"c{place}": value for place, value in enumerate(classes)},
        best_epochs=(),
        failed=failed,
    )


def chosen(*candidates: Confirmation, goal: Goal | None = None) -> tuple[int, str]:
    found = choose({candidate.number: candidate for candidate in candidates}, DEFAULT, BASIS, goal)
    assert found is not None
    return found[0].number, found[1]


def without_classes(number: int, mean: float, searched: float) -> Confirmation:
    return replace(confirmed(number, [mean], searched), classes={})


ABOVE = "points above the default on the 4 validation classes,"


@pytest.mark.parametrize(
    ("default", "finalist", "number", "reason"),
    [
        (
            confirmed(0, [0.2, 0.4]), confirmed(3, [0.3, 0.52], searched=0.6), 3,
            f"trial 3 is 10.0 {ABOVE} and 11.0 ± 1.0 points above it on both halves; it is chosen",
        ),
        (
            confirmed(0, [0.3, 0.4]), confirmed(9, [0.26, 0.42], searched=0.55), 0,
            f"trial 9 is 5.0 {ABOVE} but 1.0 ± 3.0 points below it on both halves; the default is kept",
        ),
        (
            confirmed(0, [0.2, 0.4]), confirmed(3, [0.4, 0.6], searched=0.49), 0,
            "no trial is above the default on the 4 validation classes; the default is kept",
        ),
        (
            without_classes(0, 0.5, 0.5), without_classes(2, 0.51, 0.6), 2,
            f"trial 2 is 10.0 {ABOVE} and 1.0 points above it on both halves; it is chosen",
        ),
    ],
)  # fmt: skip
def test_a_finalist_replaces_the_default_if_search_and_confirmation_agree(
    default: Confirmation, finalist: Confirmation, number: int, reason: str
) -> None:
    assert chosen(default, finalist) == (number, reason)


def test_the_highest_mean_of_those_above_the_default_is_chosen() -> None:
    candidates = [confirmed(0, [0.2, 0.4]), confirmed(3, [0.3, 0.5], 0.9), confirmed(5, [0.4, 0.6], 0.6)]
    assert chosen(*candidates)[0] == 5
    assert chosen(*candidates[:2], confirmed(5, [0.4, 0.6], 0.6, failed=1))[0] == 3, "a failed seed comes last"
    assert chosen(candidates[0], confirmed(4, [0.3, 0.5], 0.8), candidates[1])[0] == 3, "ties go to the lower number"


def test_without_values_of_the_default_the_highest_mean_is_chosen() -> None:
    number, reason = chosen(confirmed(0, [], failed=1), confirmed(3, [0.1, 0.2]), confirmed(4, [0.1, 0.3]))
    assert number == 4
    assert "the default has none or does not meet the constraints" in reason
    assert choose({0: confirmed(0, [], failed=1)}, DEFAULT, BASIS) is None


classes = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40)


@given(pairs=classes, errors=st.floats(0, 3))
def test_the_error_is_that_of_a_paired_t_test(pairs: list[tuple[float, float]], errors: float) -> None:
    first, second = (confirmed(number, column) for number, column in enumerate(zip(*pairs, strict=True)))
    found = Difference.by_class(first.classes, second.classes)
    assert found is not None
    assert found.error is not None
    differences = np.subtract(*np.array(pairs).T)
    assert found.mean == pytest.approx(differences.mean(), abs=1e-12)
    assert found.error == pytest.approx(stats.sem(differences), abs=1e-12)
    assert found.is_above(errors) == (found.mean > errors * found.error)


@given(table=st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=5), order=st.randoms())
def test_the_choice_is_never_below_the_default_and_does_not_depend_on_the_order(
    table: list[list[float]], order: object
) -> None:
    candidates = [confirmed(number, row, searched=row[0]) for number, row in enumerate(table)]
    number, _ = chosen(*candidates)
    assert candidates[number].mean >= candidates[0].mean
    order.shuffle(candidates)  # type: ignore[attr-defined]
    assert chosen(*candidates)[0] == number


# The recommendation.


def recommended(untrained: Mapping[str, Sequence[float]], **losses: Sequence[float]) -> tuple[str, int | None, str]:
    found = recommend(
        {loss: confirmed(number, row) for number, (loss, row) in enumerate(losses.items(), start=1)},
        {name: {f"c{place}": value for place, value in enumerate(row)} for name, row in untrained.items()},
        BASIS,
    )
    return found.loss, found.number, found.basis


def test_the_best_loss_is_recommended_unless_a_network_without_training_is_better() -> None:
    assert recommended({}, pnp=[0.1, 0.2], mpa=[0.3, 0.2]) == ("mpa", 2, "chosen on both halves")
    networks = {"untrained": [0.2, 0.3], "whitened": [0.1, 0.2]}
    assert recommended(networks, mpa=[0.3, 0.41])[2] == ("10.5 ± 0.5 points above the untrained network on both halves")
    for row, side in (([0.15, 0.45], "above"), ([0.05, 0.35], "below")):
        assert recommended(networks, pnp=[0.1, 0.1], mpa=row) == (
            "mpa",
            2,
            f"5.0 ± 10.0 points {side} the untrained network on both halves, which is within the error",
        )
    assert recommended(networks, pnp=[0.1, 0.2], mpa=[0.18, 0.27]) == (
        "untrained",
        None,
        "no training is better: mpa, the best one, is 2.5 ± 0.5 points below it on both halves",
    )
    assert recommended({**networks, "whitened": [0.9, 0.8]}, mpa=[0.3, 0.41])[0] == "whitened"


# Constraints.

POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def measured(value: float, ms: float) -> dict[str, float]:
    return {"map_at_r": value, "embed_ms": ms}


def goal(*bounds: str) -> Goal:
    return Goal(objective="map_at_r", constraints=tuple(Constraint.parse("embed_ms", bound) for bound in bounds))


@given(POINTS, st.integers(0, 4))
def test_what_meets_the_constraints_comes_first_then_the_best(points: list[tuple[int, int]], most: int) -> None:
    order = goal(f"<= {most}").ranked([measured(*point) for point in points])
    assert sorted(order) == list(range(len(points)))
    for first, second in itertools.pairwise(order):
        (one, ms), (other, other_ms) = points[first], points[second]
        if (ms <= most) == (other_ms <= most):
            assert one > other or (one == other and first < second)
        else:
            assert ms <= most


BOUNDS = [("< 5", 4.9, 5.0), ("<= 5", 5.0, 5.1), ("> .5", 0.51, 0.5), (">=5e-1", 0.5, 0.4)]


@pytest.mark.parametrize(("text", "met", "unmet"), BOUNDS)
def test_bounds_are_kept_as_they_are_written(text: str, met: float, unmet: float) -> None:
    constraint = Constraint.parse("embed_ms", text)
    assert constraint.excess({"embed_ms": met}) <= 0 < constraint.excess({"embed_ms": unmet})


def of_two(number: int, value: float, ms: float, failed: int = 0) -> Confirmation:
    """Return a confirmation of two seeds with both metrics, without values by class."""
    entry = confirmed(number, [value], value, failed)
    return replace(entry, classes={}, values=(value, value), measured=measured(value, ms))


def test_the_choice_is_the_best_that_meets_the_constraints() -> None:
    candidates = of_two(0, 0.9, 9.0), of_two(3, 0.5, 4.0), of_two(7, 0.6, 4.5)
    number, reason = chosen(*candidates, goal=goal("< 5"))
    assert number == 7
    assert reason.endswith("; its embed_ms is 4.5; 1 of 3 finalists do not meet the constraints")
    assert choose({0: candidates[0]}, DEFAULT, BASIS, goal("< 5")) is None


# The frozen selection.

ROWS = [RowKey("s", "mpa", Role.DEFAULT), RowKey("s", "mpa", Role.TUNED)]
FAMILY = Family.of(["recall_at_1"], ROWS, [ROWS], None)
FROZEN = Selection(
    id="1", search="s", objective="map_at_r", test_metrics=("recall_at_1",), family=FAMILY,
    split_digest="a", test_digest="b", studies={"s/mpa": "c"}, rule="the best", exported="the first",
    chosen={"mpa": confirmed(3, [0.5, 0.7])}, defaults={"mpa": confirmed(0, [0.4])}, reasons={"mpa": "best"},
    recommended=Recommendation(loss="mpa", number=3, basis="chosen"), trained_on_opened=None, baselines=None,
)  # fmt: skip


def test_a_selection_is_read_back_and_an_edited_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    with pytest.raises(InvalidInput, match="Nothing is selected yet"):
        Selection.load(path)
    FROZEN.save(path)
    assert Selection.load(path) == FROZEN
    content = json.loads(path.read_text())
    content["chosen"]["mpa"]["params"] = {"x": 9}
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInput, match="was changed after it was frozen"):
        Selection.load(path)
