"""Pareto fronts, constraints and the choice between objectives, against their definitions."""

import math

import pytest
from hypothesis import given, strategies as st

from search.difference import Basis
from search.goal import Constraint, Goal, Objective
from search.selection.choice import Confirmation, choose, unmet_sentence

TWO = (Objective.parse("map_at_r"), Objective.parse("-embed_ms"))
POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def measured(value: float, ms: float) -> dict[str, float]:
    return {"map_at_r": value, "embed_ms": ms}


def goal(*bounds: str, objectives: tuple[Objective, ...] = TWO) -> Goal:
    constraints = tuple(Constraint.parse("embed_ms", bound) for bound in bounds)
    return Goal(objectives=objectives, constraints=constraints)


def beats(first: dict[str, float], second: dict[str, float]) -> bool:
    """Return True if ``first`` is as good in both objectives, and better in one."""
    better = first["map_at_r"] > second["map_at_r"] or first["embed_ms"] < second["embed_ms"]
    worse = first["map_at_r"] < second["map_at_r"] or first["embed_ms"] > second["embed_ms"]
    return better and not worse


@given(POINTS)
def test_a_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    entries = [measured(*point) for point in points]
    assert goal().front(entries) == [
        place for place, entry in enumerate(entries) if not any(beats(other, entry) for other in entries)
    ]


@given(POINTS)
def test_the_order_has_each_front_before_what_it_beats(points: list[tuple[int, int]]) -> None:
    entries = [measured(*point) for point in points]
    order = goal().ranked(entries)
    assert sorted(order) == list(range(len(entries)))
    for later, place in enumerate(order):
        assert not any(beats(entries[place], entries[earlier]) for earlier in order[:later])


@given(POINTS, st.integers(0, 4))
def test_what_meets_the_constraints_comes_first(points: list[tuple[int, int]], most: int) -> None:
    entries = [measured(*point) for point in points]
    bounded = goal(f"<= {most}")
    met = [entries[place]["embed_ms"] <= most for place in bounded.ranked(entries)]
    assert met == sorted(met, reverse=True)
    assert all(entries[place]["embed_ms"] <= most for place in bounded.front(entries))


def test_the_ideal_is_in_units_of_the_front() -> None:
    # From the front's best values, 0.5 and 1 ms, in units of 0.4 and 100 ms: distances 1, 1 and (1/4)² + (1/5)².
    entries = [measured(0.5, 101.0), measured(0.1, 1.0), measured(0.4, 21.0)]
    assert goal().ranked(entries)[0] == 2


@pytest.mark.parametrize(
    ("text", "met", "unmet"),
    [
        ("< 5", (4.9, -math.inf), (5.0, 6.0)),
        ("<= 5", (5.0,), (5.1,)),
        ("> .5", (0.51,), (0.5,)),
        (">=5e-1", (0.5,), (0.4,)),
    ],
)
def test_bounds_are_kept_as_they_are_written(text: str, met: tuple[float, ...], unmet: tuple[float, ...]) -> None:
    constraint = Constraint.parse("embed_ms", text)
    assert all(constraint.excess({"embed_ms": value}) <= 0 for value in met)
    assert all(constraint.excess({"embed_ms": value}) > 0 for value in unmet)


BASIS = Basis(objective="map_at_r", validation="in the search", confirmation="on halves", better_by=1.0)


def confirmed(number: int, value: float, ms: float, failed: int = 0) -> Confirmation:
    return Confirmation(
        number=number, params={"margin": number}, searched=(value,), values=(value, value), classes={},
        best_epochs=(1, 1), failed=failed, measured=measured(value, ms),
    )  # fmt: skip


def by_number(*entries: Confirmation) -> dict[int, Confirmation]:
    return {entry.number: entry for entry in entries}


def test_the_choice_is_the_best_that_meets_the_constraints() -> None:
    candidates = by_number(confirmed(0, 0.9, 9.0), confirmed(3, 0.5, 4.0), confirmed(7, 0.6, 4.5))
    found = choose(candidates, {"margin": 0}, BASIS, goal("< 5", objectives=TWO[:1]))
    assert found is not None
    assert found[0].number == 7
    assert found[1].endswith("; 1 of 3 finalists do not meet the constraints")


def test_the_choice_between_objectives_says_where_it_comes_from() -> None:
    candidates = by_number(
        confirmed(0, 0.9, 9.0), confirmed(3, 0.1, 1.0), confirmed(7, 0.8, 2.0), confirmed(8, 0.7, 3.0)
    )
    found = choose(candidates, {"margin": 0}, BASIS, goal())
    assert found is not None
    assert found[0].number == 7
    assert found[1].startswith(
        "trial 7 is one of 3 on the Pareto front of 4 confirmed configurations, with map_at_r 0.8, embed_ms 2 and 2 "
        "fresh seeds"
    )
    failed = {**candidates, 7: confirmed(7, 0.8, 2.0, failed=1)}
    assert choose(failed, {"margin": 0}, BASIS, goal())[0].number != 7  # type: ignore[index]


def test_nothing_is_chosen_beyond_the_constraints() -> None:
    candidates = by_number(confirmed(0, 0.9, 9.0), confirmed(3, 0.5, 7.0))
    one = goal("< 5", objectives=TWO[:1])
    assert choose(candidates, {"margin": 0}, BASIS, one) is None
    assert unmet_sentence("mpa", list(candidates.values()), one) == (
        "No confirmed configuration of mpa meets search.constraints; of trial 0, embed_ms is 9, which must be < 5."
    )
    assert unmet_sentence("mpa", list(candidates.values()), goal("< 8", objectives=TWO[:1])) is None
