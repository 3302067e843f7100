"""Diagnostics on made-up studies: they speak where they should, and are silent where they should not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.report.diagnostics.diagnose import MIN_TRIALS, diagnose
from search.report.diagnostics.edges import edges
from search.report.diagnostics.replicates import replicates
from search.report.diagnostics.ridges import ridge, ridges
from search.report.diagnostics.scale import position, value_at
from spaces.losses import SPACES
from spaces.space import Parameter, Space
from spaces.value import Value
from trainables.training.config import TrainingConfig

UNIT = FloatDistribution(0, 1)


def space(**distributions: BaseDistribution) -> Space:
    return {
        name: Parameter(distribution=entry, default=getattr(entry, "low", None) or _first(entry), source="test")
        for name, entry in distributions.items()
    }


def _first(distribution: BaseDistribution) -> Value:
    return distribution.choices[0] if isinstance(distribution, CategoricalDistribution) else distribution.low  # type: ignore[attr-defined]


def trial(number: int, value: float, params: dict[str, Any], distributions: Space) -> FrozenTrial:
    made = create_trial(
        state=TrialState.COMPLETE,
        value=value,
        params=params,
        distributions={name: distributions[name].distribution for name in params},
        user_attrs={"params": params},
    )
    made.number = number
    return made


@pytest.mark.parametrize(
    ("distribution", "value", "upwards"),
    [
        (FloatDistribution(0, 10), 0.4, False),
        (FloatDistribution(0, 10), 0.6, None),
        (FloatDistribution(0, 10), 9.6, True),
        (FloatDistribution(0, 1, step=0.1), 0.9, True),
        (FloatDistribution(0, 1, step=0.1), 0.8, None),
        (FloatDistribution(0, 1, step=0.5), 0.5, None),
        (FloatDistribution(0.01, 1, log=True), 0.012, False),
        (FloatDistribution(0.01, 1, log=True), 0.06, None),
        (IntDistribution(1, 100), 97, True),
        (IntDistribution(1, 10), 2, False),
        (CategoricalDistribution((16, 1, 4)), 16, True),
        (CategoricalDistribution((16, 1, 4)), 4, None),
        (CategoricalDistribution((1, 4)), 4, None),
        (CategoricalDistribution(("a", "b", "c")), "c", None),
        (CategoricalDistribution((True, False)), True, None),
        (CategoricalDistribution((5,)), 5, None),
        (FloatDistribution(2, 2), 2.0, None),
    ],
)
def test_an_optimum_at_an_edge(distribution: BaseDistribution, value: Value, upwards: bool | None) -> None:
    asked: list[Value] = []

    def allowed(name: str, beyond: Value) -> bool:
        asked.append(beyond)
        return True

    found = list(edges(space(x=distribution), {"x": value}, allowed))
    assert [("upwards" in entry.sentence) for entry in found] == ([] if upwards is None else [upwards])
    for beyond in asked:
        parameter = space(x=distribution)["x"]
        assert not parameter.contains(beyond), "the domain is asked about a value outside the range"
        if isinstance(distribution, IntDistribution):
            assert isinstance(beyond, int)
    assert not list(edges(space(x=distribution), {"x": value}, lambda name, beyond: False)), "the domain's end"


def test_a_position_and_its_inverse() -> None:
    for distribution in (FloatDistribution(2, 6), FloatDistribution(0.01, 100, log=True), IntDistribution(1, 5)):
        for value in (distribution.low, 3, distribution.high):
            assert value_at(distribution, position(distribution, value)) == pytest.approx(value)
    assert position(FloatDistribution(0.01, 100, log=True), 1) == pytest.approx(0.5)


def test_the_domain_of_a_loss_and_of_the_training_is_known() -> None:
    declared = {**SPACES["proxy_anchor"], **space(**{"training.lr": FloatDistribution(1e-4, 1e-2, log=True)})}
    best: dict[str, Value] = {"margin": 0.0, "scale": 2.0, "training.lr": 1e-2}
    trials = [trial(number, 0.1, {"scale": 2.0 + 2 * number}, declared) for number in range(MIN_TRIALS)]
    found = diagnose("proxy_anchor", declared, TrainingConfig(), trials, best)
    by_name = {entry.parameters: entry.sentence for entry in found if entry.kind == "edge"}
    assert "widen it upwards" in by_name["training.lr",]
    assert by_name.keys() == {("training.lr",)}, "neither a margin nor a scale can be lower"
    high = diagnose("proxy_anchor", declared, TrainingConfig(), trials, {"scale": 98.0})
    assert "the best scale, 98, lies at the high end of its range, 100: a new search should" in high[0].sentence
    few = diagnose("proxy_anchor", declared, TrainingConfig(), trials[1:], best)
    assert not few, "too few trials to say anything"


def test_what_no_loss_allows_is_no_wider_range() -> None:
    trials = [trial(number, 0.1, {"proxies_per_class": 1}, SPACES["mpa"]) for number in range(MIN_TRIALS)]
    for proxies, kinds in ((1, {"replicates"}), (16, {"replicates", "edge"})):
        found = diagnose("mpa", SPACES["mpa"], TrainingConfig(), trials, {"proxies_per_class": proxies})
        assert {entry.kind for entry in found} == kinds


Objective = Callable[[float, float], float]
RIDGES: dict[str, Objective] = {
    "sum": lambda u, v: -((u + v - 1) ** 2),
    "difference": lambda u, v: -((u - v) ** 2),
    "product": lambda u, v: -3 * ((0.1 + u) * (0.1 + v) - 0.3) ** 2,
}
NO_RIDGES: dict[str, Objective] = {
    "peak": lambda u, v: -((u - 0.3) ** 2) - (v - 0.6) ** 2,
    "broad peak": lambda u, v: -0.3 * ((u - 0.5) ** 2 + (v - 0.5) ** 2),
    "one matters": lambda u, v: -((u - 0.4) ** 2),
    "flat": lambda u, v: 0.0,
}


def detected(objective: Objective, studies: int, noise: float = 0.03) -> float:
    """The share of random searches of 64 trials in which a ridge is seen."""
    generator = np.random.default_rng(0)
    found = 0
    for _ in range(studies):
        points = generator.random((64, 2))
        values = np.array([objective(u, v) for u, v in points]) + generator.normal(0, noise, 64)
        found += ridge(points, values, level=0.01) is not None
    return found / studies


@pytest.mark.parametrize("name", RIDGES)
def test_ridges_are_seen(name: str) -> None:
    assert detected(RIDGES[name], 60) >= 0.7


@pytest.mark.parametrize("name", NO_RIDGES)
def test_what_is_no_ridge_is_not_called_one(name: str) -> None:
    assert detected(NO_RIDGES[name], 150) <= 0.02


@pytest.mark.parametrize("seed", range(3))
def test_a_sampler_that_dwells_on_a_few_points_makes_no_ridge(seed: int) -> None:
    generator = np.random.default_rng(seed)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), direction="maximize")
    study.optimize(
        lambda trial: generator.normal(trial.suggest_float("u", 0, 1) * trial.suggest_float("v", 0, 1) * 0, 1), 64
    )
    assert not list(ridges(space(u=UNIT, v=UNIT), study.trials))


def test_a_ridge_is_named_with_its_parameters_and_small_studies_are_silent() -> None:
    declared = space(scale=FloatDistribution(1, 100, log=True), margin=UNIT, mining=CategoricalDistribution(("a", "b")))
    generator = np.random.default_rng(1)
    trials = []
    for number in range(64):
        scale, margin = float(100 ** generator.random()), float(generator.random())
        value = -((position(declared["scale"].distribution, scale) + margin - 1) ** 2) + generator.normal(0, 0.02)  # type: ignore[arg-type]
        trials.append(trial(number, value, {"scale": scale, "margin": margin, "mining": "a"}, declared))
    (found,) = ridges(declared, trials)
    assert found.parameters == ("scale", "margin")
    assert "scale and margin cannot be told apart: the best 16 of 64 trials" in found.sentence
    assert not list(ridges(declared, trials[:31]))


def test_replicates_estimate_the_noise() -> None:
    declared = space(x=UNIT)
    values = {0.1: (0.5, 0.7), 0.2: (0.4,), 0.3: (0.1, 0.2, 0.6)}
    trials = [
        trial(n, value, {"x": x}, declared) for n, (x, value) in enumerate((x, v) for x in values for v in values[x])
    ]
    (found,) = replicates(trials)
    pooled = np.sqrt((np.var([0.5, 0.7], ddof=1) + 2 * np.var([0.1, 0.2, 0.6], ddof=1)) / 3)
    assert "2 configurations were trained more than once" in found.sentence
    assert f"deviation of {pooled:.4f} (3 degrees of freedom)" in found.sentence
    assert not list(replicates(trials[2:4]))
