"""The bench of searches: tables, the nearest row, and searches in simulated time, calculated by hand."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from benchmarks.search.__main__ import TABLES, interval
from benchmarks.search.candidates import extrapolated, with_running
from benchmarks.search.replay import Replay, Way
from benchmarks.search.table import Table, read_table
from search.study.sampler import Fixed, Sampler
from search.study.samplers import GaussianProcess, Qmc, Random, Tpe
from spaces.losses import declared_space
from spaces.search_space import SearchSpace
from spaces.space import Parameter, Params
from trainables.losses import loss_part

NAMES = [path.stem for path in sorted(TABLES.glob("*.parquet"))]


def hill(values: Sequence[float], epochs: int = 8) -> Table:
    """Return a table over x in 0 … 1 whose trainings have constant curves of these values and no noise."""
    places = np.linspace(0, 1, len(values))
    x = Parameter(distribution=FloatDistribution(0, 1), default=0.0, source="made up")
    heights = np.array(values)[:, None, None]
    return Table(
        name="hill",
        space=SearchSpace(parameters={"x": x}, declared={"x": x}),
        configurations=tuple(Params({"x": float(place)}) for place in places),
        validation=np.repeat(heights[..., None], epochs, axis=-1),
        other=heights,
        about={},
    )


class InOrder(Sampler):
    """Proposes 0.25, 0.5, 0.75 and so on."""

    summary = "in order"

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return Fixed({"x": number / 4})


@pytest.mark.parametrize(("sampler", "trials"), [(Tpe, 40), (GaussianProcess, 12)])
def test_known_optimum_found(sampler: type[Sampler], trials: int) -> None:
    table = hill([1 - (place - 0.7) ** 2 for place in np.linspace(0, 1, 21)])
    outcome = Replay(table, Way(sampler=sampler), trials=trials, slots=2, run=0).outcome()
    assert outcome.chosen == outcome.visited == 14
    assert table.regret(14) == 0
    assert table.regret(0) == pytest.approx(49)


def test_two_slots_by_hand() -> None:
    # Trials 0 and 1 train until 8. Trials 2 and 3 follow until 10, where both are in the lower half of rung 2. The
    # finalists are 1, 0 and 3, the better one of the pruned trials. One seed each takes until 26 (two, then one), and
    # a further one for the better two of them until 34.
    outcome = Replay(hill([0.5, 0.9, 0.1, 0.2, 0.0]), Way(sampler=InOrder), trials=4, slots=2, run=0).outcome()
    assert (outcome.time, outcome.epochs, outcome.confirming) == (34, 20 + 24 + 16, 24 + 16)
    assert outcome.chosen == outcome.visited == 1


@pytest.mark.parametrize(("slots", "time"), [(1, 16 + 4 + 40), (2, 34), (4, 8 + 8 + 8)])
def test_slots_shorten_the_time(slots: int, time: float) -> None:
    # With four slots trial 2, of 0.1, is the third to reach rung 2, and trial 3 the fourth: as with two.
    outcome = Replay(hill([0.5, 0.9, 0.1, 0.2, 0.0]), Way(sampler=InOrder), trials=4, slots=slots, run=0).outcome()
    assert (outcome.time, outcome.epochs) == (time, 60)


def test_one_epoch_then_the_best() -> None:
    # 4 trials of an epoch; trials 0, 1 and 3 train 7 more; each of the 2 finalists and the default is confirmed.
    way = Way(sampler=InOrder, pruner="none", probe=2, finalists=1, seeds=1)
    outcome = Replay(hill([0.5, 0.9, 0.1, 0.2, 0.0]), way, trials=4, slots=1, run=0).outcome()
    assert (outcome.epochs, outcome.confirming, outcome.chosen) == (4 + 3 * 7 + 2 * 8, 2 * 8, 1)


def test_extrapolated_by_hand() -> None:
    # Mean gains: of epoch 2 (.2 + .1 + .3) / 3, of epoch 3 (.1 + .2) / 2, of epoch 4 .3.
    def trial(state: TrialState, *values: float) -> FrozenTrial:
        steps = dict(enumerate(values, start=1))
        value = values[-1] if state == TrialState.COMPLETE else None
        return create_trial(state=state, value=value, intermediate_values=steps)

    complete = trial(TrialState.COMPLETE, 0.1, 0.3, 0.4, 0.7)
    pruned = trial(TrialState.PRUNED, 0.2, 0.3, 0.5)
    running = trial(TrialState.RUNNING, 0.2, 0.5)
    new = trial(TrialState.RUNNING)
    found = extrapolated([complete, pruned, running, new])
    assert [entry.state.name for entry in found] == ["COMPLETE", "COMPLETE", "COMPLETE", "RUNNING"]
    assert [entry.value for entry in found[:3]] == pytest.approx([0.7, 0.5 + 0.3, 0.5 + 0.15 + 0.3])
    assert [entry.state.name for entry in with_running([complete, pruned, running, new])] == [
        "COMPLETE", "PRUNED", "PRUNED", "RUNNING",
    ]  # fmt: skip
    assert running.state == TrialState.RUNNING, "the study's own trial is not changed"


@pytest.mark.parametrize(("splits", "chosen"), [(1, 1), (2, 2)])
def test_another_split_may_decide(splits: int, chosen: int) -> None:
    # Row 1 is the best on the search's split, 0.9 against 0.8; on the other one it has 0.1, and row 2 0.9.
    first, other = (hill(values) for values in ([0.5, 0.9, 0.8, 0.2, 0.0], [0.5, 0.1, 0.9, 0.2, 0.0]))
    validation = np.concatenate([first.validation, other.validation], axis=1)
    table = replace(first, validation=validation, other=np.concatenate([first.other, other.other], axis=1))
    way = Way(sampler=InOrder, pruner="none", rule="mean", splits=splits)
    assert Replay(table, way, trials=4, slots=1, run=0).outcome().chosen == chosen


def test_diverging_rows_fail() -> None:
    table = hill([0.5, 0.9, 0.6, 0.55, 0.0])
    table.validation[1] = np.nan
    outcome = Replay(table, Way(sampler=InOrder, pruner="none"), trials=4, slots=1, run=0).outcome()
    assert outcome.chosen == 2
    assert outcome.epochs == 8 * (3 + 3 + 2)  # trials 0, 2 and 3, and their confirmations in two rounds


def test_nearest_row_by_loops() -> None:
    ranged = Parameter(distribution=FloatDistribution(0.01, 1, log=True), default=0.1, source="made up")
    kind = Parameter(distribution=CategoricalDistribution(("a", "b")), default="a", source="made up")
    only_b = replace(ranged, when={"kind": ("b",)})
    parameters = {"kind": kind, "rate": ranged, "extra": only_b}
    rows = [
        Params({"kind": "a", "rate": 0.01}),
        Params({"kind": "a", "rate": 1.0}),
        Params({"kind": "b", "rate": 0.1, "extra": 0.1}),
    ]
    table = replace(
        hill([0, 0, 0]),
        space=SearchSpace(parameters=parameters, declared=parameters),
        configurations=tuple(rows),
    )
    assert [table.nearest(row) for row in rows] == [0, 1, 2]
    assert table.nearest({"kind": "a", "rate": 0.09}) == 0  # on a log scale below the middle
    assert table.nearest({"kind": "a", "rate": 0.11}) == 1
    assert table.nearest({"kind": "b", "rate": 1.0, "extra": 0.1}) == 2


def test_noise_is_that_of_the_seeds() -> None:
    generator = np.random.default_rng(0)
    means, noise = generator.uniform(0.4, 0.6, 40), 0.02
    values = means[:, None, None, None] + noise * generator.standard_normal((40, 1, 2, 1))
    table = replace(hill(means.tolist(), epochs=1), validation=values)
    drawn = np.array([[table.curve(row, 0, generator)[0] for _ in range(200)] for row in range(40)])
    assert drawn.mean(1) == pytest.approx(values.mean((1, 2, 3)), abs=0.006)
    assert np.sqrt(drawn.var(1).mean()) == pytest.approx(noise, rel=0.2)


@pytest.mark.parametrize("sampler", [Random, Qmc])
def test_replay_repeats_itself(sampler: type[Sampler]) -> None:
    table = hill([0.1, 0.7, 0.3, 0.9, 0.2])
    found = [Replay(table, Way(sampler=sampler), trials=8, slots=8, run=3).outcome() for _ in range(2)]
    assert found[0] == found[1]


def test_interval_of_equal_values_is_empty() -> None:
    assert interval([np.full(4, 2.0), np.full(4, 2.0)], np.random.default_rng(0)) == (2.0, 0.0)
    mean, half = interval([np.full(4, 1.0), np.full(4, 3.0)], np.random.default_rng(0))
    assert (mean, half) == (2.0, 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_committed_tables(name: str) -> None:
    table = read_table(TABLES / f"{name}.parquet")
    space = declared_space(loss_part(table.about["loss"]))
    assert {key for key in table.space.parameters if "." not in key} == set(space)
    assert table.configurations[0] == table.space.default
    assert len(table.configurations) == len(table.validation) == len(set(table.configurations))
    assert min(table.regret(row) for row in range(len(table.configurations))) == 0
    assert name in table.about["command"]
    assert {type(value) for value in table.configurations[0].values()} <= {float, int, str}
