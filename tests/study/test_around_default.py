"""Draws around the default: against scipy's truncated normal distribution, and as a share of a search's trials."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import kstest, truncnorm
from support.driving import drive, only, train

from search.config.search_config import parse_config
from search.driver.stages import search_stage
from search.plan.search import OpenedSearch
from search.stages import Stage
from search.study.sampler import SPREAD, WEIGHT, around_default, at, is_turn, share_of
from search.study.storage.driver import DriverStorage
from search.study.trial_queue import TrialQueue
from spaces.search_space import SearchSpace
from spaces.space import Parameter, Value, steps
from trainables.mistakes import Mistakes

Opened = Callable[..., OpenedSearch]
DRAWS = 2000
numbers = count(1)


def drawn(distribution: BaseDistribution, default: Value) -> list[Value]:
    parameters = {"x": Parameter(distribution=distribution, default=default, source="made up")}
    space = SearchSpace(parameters=parameters, declared=parameters)
    return [around_default(space, seed)["x"] for seed in range(DRAWS)]


@pytest.mark.parametrize(
    ("low", "high", "log", "default"), [(-2, 6, False, 0.5), (0.001, 10, True, 0.01), (0, 1, False, 1)]
)
def test_numbers_are_normal_around_the_default_and_cut_off(low: float, high: float, log: bool, default: float) -> None:
    values = np.array(drawn(FloatDistribution(low, high, log=log), default), dtype=float)
    scale = np.log if log else np.asarray
    shares = (scale(values) - scale(low)) / (scale(high) - scale(low))
    middle = (scale(default) - scale(low)) / (scale(high) - scale(low))
    expected = truncnorm(-middle / SPREAD, (1 - middle) / SPREAD, loc=middle, scale=SPREAD)
    assert kstest(shares, expected.cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("distribution", "default"),
    [(FloatDistribution(0, 1, step=0.25), 0.5), (IntDistribution(1, 7), 2), (IntDistribution(0, 9, step=3), 3)],
)
def test_numbers_fall_on_their_steps(distribution: FloatDistribution | IntDistribution, default: float) -> None:
    found = Counter(drawn(distribution, default))
    values = steps(distribution)
    assert values is not None
    middle = (values.index(default) + 0.5) / len(values)
    normal = truncnorm(-middle / SPREAD, (1 - middle) / SPREAD, loc=middle, scale=SPREAD)
    for index, value in enumerate(values):
        expected = normal.cdf((index + 1) / len(values)) - normal.cdf(index / len(values))
        assert found[value] / DRAWS == pytest.approx(expected, abs=4 * math.sqrt(expected / DRAWS))


def test_a_choice_is_the_default_more_often_than_another() -> None:
    found = Counter(drawn(CategoricalDistribution(("a", "b", "c")), "b"))
    weights = {"a": 1, "b": WEIGHT, "c": 1}
    for choice, weight in weights.items():
        expected = weight / sum(weights.values())
        assert found[choice] / DRAWS == pytest.approx(expected, abs=4 * math.sqrt(expected / DRAWS))


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(-2, 6),
        FloatDistribution(0.001, 10, log=True),
        FloatDistribution(0, 1, step=0.1),
        IntDistribution(1, 9, step=2),
        IntDistribution(1, 64, log=True),
        FloatDistribution(3, 3),
    ],
)
def test_a_value_has_its_share(distribution: FloatDistribution | IntDistribution) -> None:
    values = steps(distribution) or np.linspace(distribution.low, distribution.high, 7)[:-1].tolist()
    for value in values:
        assert at(distribution, share_of(distribution, value)) == pytest.approx(value)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.5, 1.0])
def test_of_any_trials_in_a_row_the_share_is_drawn(share: float) -> None:
    turns = [is_turn(share, 3, "mpa", number) for number in range(200)]
    assert not turns[0]
    for first in range(1, 180):
        for length in (1, 7, 16):
            assert math.floor(length * share) <= sum(turns[first : first + length]) <= math.ceil(length * share)
    assert share in (0, 1) or len({tuple(is_turn(share, seed, "mpa", n) for n in range(20)) for seed in range(9)}) > 1


def search_with(opened: Opened, sampler: str, prior: float) -> OpenedSearch:
    return opened(
        name=f"search-{next(numbers)}",  # those of a test share a runs folder
        search={"trials": 8, "sampler": sampler, "pruner": "none", "prior": prior},
        losses=["pnp"],
        training={"epochs": 1, "batch_size": 20},
    )


def proposals(search: OpenedSearch) -> list[dict[str, Value]]:
    return [trial.user_attrs["params"] for trial in search.study("pnp", Stage.SEARCH).trials()]


@pytest.mark.parametrize("sampler", ["tpe", "random", "qmc"])
def test_the_draws_are_those_of_seed_and_number_whatever_the_sampler_or_a_death(opened: Opened, sampler: str) -> None:
    search = search_with(opened, sampler, 0.25)
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        train(queue, job, lambda running, epoch: 1 / (1 + running.number))
        search = OpenedSearch(plan=search.plan, storage=DriverStorage(search.storage.database))
        queue = TrialQueue(only(search_stage(search)))
    lived = search_with(opened, sampler, 0.25)
    drive(lived, lambda running, epoch: 1 / (1 + running.number))
    found = proposals(search)
    assert proposals(lived) == found
    everything = search_with(opened, "random", 1)
    drive(everything)
    around = proposals(everything)
    same = [number for number in range(1, 8) if found[number] == around[number]]
    assert same == [number for number in range(8) if is_turn(0.25, 0, "pnp", number)]
    assert len(same) in (1, 2)


@pytest.mark.parametrize("sampler", ["grid", "coordinate"])
def test_what_goes_over_steps_in_order_refuses_them(
    search_file: Callable[..., dict[str, object]], sampler: str
) -> None:
    content = search_file(search={"sampler": sampler, "pruner": "none", "prior": 0.25})
    with pytest.raises(Mistakes, match=f"sampler {sampler} visits a fixed list .* set prior to 0"):
        parse_config(content)
