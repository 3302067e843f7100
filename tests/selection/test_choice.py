"""The rules of the choice, and shrunk means."""

import statistics

import numpy as np
import pytest
from hypothesis import given, strategies as st

from search.selection.choice import (
    Confirmation,
    best_on_splits,
    choose,
    pooled_variance,
    rounds,
    shrunk_means,
    split_effects,
)

GROUPS = st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=6), min_size=1, max_size=6)


def tried(
    number: int,
    *values: float,
    searched: tuple[float, ...] = (),
    failed: int = 0,
    splits: tuple[int, ...] | None = None,
) -> Confirmation:
    return Confirmation(
        number=number,
        params={"x": number},
        searched=searched,
        values=values,
        splits=(0,) * len(values) if splits is None else splits,
        best_epochs=(),
        failed=failed,
    )


def by_number(*candidates: Confirmation) -> dict[int, Confirmation]:
    return {candidate.number: candidate for candidate in candidates}


def test_the_highest_mean_is_chosen_and_ties_go_to_the_lower_number() -> None:
    found = choose("mean", by_number(tried(0, 0.5, 0.5), tried(3, 0.9, 0.2), tried(7, 0.4, 0.7)))
    assert found is not None
    best, _, reason = found
    assert best.number == 3
    assert reason == "trial 3 has the highest confirmed mean, 0.5500, with 2 fresh seeds; next is trial 7 with 0.5500"


@pytest.mark.parametrize("rule", ["mean", "halving"])
def test_a_configuration_with_a_failed_seed_comes_last(rule: str) -> None:
    found = choose(rule, by_number(tried(0, 0.1, 0.1), tried(3, 0.9, failed=1)))  # type: ignore[arg-type]
    assert found is not None
    assert found[0].number == 0
    assert choose(rule, by_number(tried(0, failed=2))) is None  # type: ignore[arg-type]
    assert choose(rule, {}) is None  # type: ignore[arg-type]


def test_the_search_counts_as_one_more_seed() -> None:
    candidates = by_number(tried(0, 0.5, 0.52, searched=(0.9,)), tried(3, 0.53, 0.51, searched=(0.1,)))
    halving, mean = choose("halving", candidates), choose("mean", candidates)
    assert halving is not None
    assert mean is not None
    assert (halving[0].number, mean[0].number) == (0, 3)
    assert halving[1][3].estimate == mean[1][3].estimate, "what is reported comes from the fresh seeds alone"


def test_one_lucky_seed_is_not_better_than_several_good_ones() -> None:
    """A mean of one value is shrunk much more than a mean of five."""
    steady = tried(2, 0.60, 0.66, 0.57, 0.69, 0.63)
    found = choose("halving", by_number(tried(0, 0.5, 0.62, 0.52), tried(1, 0.635), steady))
    assert found is not None
    best, estimated, reason = found
    assert best.number == 2
    assert best.mean < 0.635
    estimate = estimated[1].estimate
    assert estimate is not None
    assert best.mean - estimate > 0
    assert reason.startswith("trial 2 has the highest shrunken mean of fresh seeds and search, 0.6")


def test_halving_gives_the_better_half_what_is_left() -> None:
    candidates = [
        tried(number, value) for number, value in ((0, 0.1), (4, 0.5), (5, 0.3), (6, 0.4), (8, 0.2), (9, 0.6))
    ]
    assert rounds("halving", candidates, 3) == {0: 1, 4: 5, 5: 1, 6: 5, 8: 1, 9: 5}
    assert rounds("mean", candidates, 3) == dict.fromkeys((0, 4, 5, 6, 8, 9), 3)
    assert rounds("halving", candidates, 1) == dict.fromkeys((0, 4, 5, 6, 8, 9), 1)
    assert rounds("halving", candidates[:2], 3) == {0: 3, 4: 3}
    assert rounds("halving", [tried(1, failed=1), tried(2, 0.1), tried(3, 0.2)], 2) == {1: 1, 2: 2, 3: 2}


@given(st.integers(1, 12), st.integers(1, 6))
def test_halving_never_costs_more(count: int, seeds: int) -> None:
    wanted = rounds("halving", [tried(number, number / 20) for number in range(count)], seeds)
    assert sum(wanted.values()) <= count * seeds
    assert min(wanted.values()) >= 1


values = st.floats(0, 1).map(lambda value: round(value, 3))


@given(table=st.lists(st.tuples(values, values, values), min_size=1, max_size=6))
def test_what_a_split_adds_where_all_were_trained_on_all_is_the_difference_of_means(
    table: list[tuple[float, float, float]],
) -> None:
    trained = [(number, split, value) for number, row in enumerate(table) for split, value in enumerate(row)]
    found = split_effects(trained)
    means = [statistics.fmean(column) for column in zip(*table, strict=True)]
    assert found == pytest.approx({split: mean - means[0] for split, mean in enumerate(means)}, abs=1e-9)


def test_a_configuration_that_was_trained_on_the_first_split_alone_has_no_say_in_what_others_add() -> None:
    both = [(0, 0, 0.5), (0, 1, 0.3), (4, 0, 0.6), (4, 1, 0.5)]
    assert split_effects(both) == pytest.approx({0: 0.0, 1: -0.15})
    assert split_effects([*both, (7, 0, 0.9), (8, 0, 0.1)]) == pytest.approx({0: 0.0, 1: -0.15})
    assert split_effects([(0, 0, 0.5), (3, 0, 0.1)]) == {0: 0.0}


def test_a_noise_of_which_split_effects_were_taken_off_has_fewer_degrees_of_freedom() -> None:
    """Against an analysis of variance by hand: two configurations on three splits leave two degrees of freedom."""
    table = np.array([[0.5, 0.7, 0.4], [0.6, 0.9, 0.45]])
    residuals = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    adjusted = table - (table.mean(0) - table.mean(0)[0])
    assert pooled_variance(adjusted.tolist(), estimated=2) == pytest.approx((residuals**2).sum() / 2)
    assert pooled_variance(adjusted[:1].tolist(), estimated=2) is None


def test_on_how_many_splits_the_choice_is_the_best() -> None:
    chosen = tried(3, 0.5, 0.6, 0.7, 0.3, splits=(0, 1, 2, 0))
    others = [tried(0, 0.45, splits=(0,)), tried(5, 0.1, 0.65, 0.7, splits=(0, 1, 2))]
    assert best_on_splits(chosen, [chosen, *others]) == [False, False, True]
    assert best_on_splits(chosen, [chosen, others[1]]) == [True, False, True]
    assert best_on_splits(chosen, [chosen]) == []


def test_shrunken_means_of_equal_counts_in_closed_form() -> None:
    groups = [[0.1, 0.3], [0.5, 0.6], [0.9, 0.7], [0.4, 0.5]]
    noise = pooled_variance(groups)
    assert noise == pytest.approx(statistics.fmean(map(statistics.variance, groups)))
    means = [statistics.fmean(group) for group in groups]
    spread = statistics.variance(means) - noise / 2
    expected = [
        statistics.fmean(means) + spread / (spread + noise / 2) * (mean - statistics.fmean(means)) for mean in means
    ]
    assert shrunk_means(groups, noise) == pytest.approx(expected)


@given(GROUPS, st.floats(1e-3, 1.0))
def test_shrunken_means_stay_between_the_means(groups: list[list[float]], noise: float) -> None:
    means = [statistics.fmean(group) for group in groups]
    found = shrunk_means(groups, noise)
    assert all(min(means) - 1e-9 <= mean <= max(means) + 1e-9 for mean in found)
    assert shrunk_means(groups, None) == shrunk_means(groups, 0.0) == means


def test_without_two_values_of_anything_there_is_no_noise_to_shrink_by() -> None:
    assert pooled_variance([[0.1], [0.2]]) is None
    found = choose("halving", by_number(tried(0, 0.1), tried(1, 0.2)))
    assert found is not None
    assert found[0].estimate == found[0].mean == 0.2


def test_at_equal_cost_halving_loses_less_and_flatters_less() -> None:
    """Six candidates with three seeds each; the noise equals the spread of the configurations."""
    generator = np.random.default_rng(0)
    lost = {"mean": 0.0, "halving": 0.0}
    flatters = dict(lost)
    for _ in range(400):
        quality = generator.normal(size=6)
        searched = quality + generator.normal(size=6)
        fresh = quality[:, None] + generator.normal(size=(6, 6))

        def after(seeds: dict[int, int], searched: object = searched, fresh: object = fresh) -> list[Confirmation]:
            return [
                tried(number, *fresh[number, :count], searched=(searched[number],))  # type: ignore[index]
                for number, count in seeds.items()
            ]

        first = after(dict.fromkeys(range(6), 1))
        for rule in ("mean", "halving"):
            found = choose(rule, by_number(*after(rounds(rule, first, 3))))  # type: ignore[arg-type]
            assert found is not None
            best = found[0]
            lost[rule] += quality.max() - quality[best.number]
            reported = best.mean if rule == "mean" else best.estimate
            assert reported is not None
            flatters[rule] += reported - quality[best.number]
    assert lost["halving"] < 0.9 * lost["mean"]
    assert abs(flatters["halving"]) < flatters["mean"] / 2


@pytest.mark.parametrize("splits", [(0, 0, 0), (0, 1, 2)])
def test_only_splits_beyond_the_first_take_a_degree_of_freedom_of_the_noise(splits: tuple[int, ...]) -> None:
    """The estimates of the choice, against those with a noise computed by hand."""
    table = [[0.5, 0.7, 0.4], [0.6, 0.9, 0.5], [0.2, 0.25, 0.45]]
    found = choose("mean", by_number(*(tried(number, *row, splits=splits) for number, row in enumerate(table))))
    assert found is not None
    within = sum(3 * statistics.pvariance(row) for row in table)
    freedom = 3 * (3 - 1) - (len(set(splits)) - 1)
    expected = shrunk_means(table, within / freedom)
    assert [found[1][number].estimate for number in range(3)] == pytest.approx(expected)
