"""Diagnostics on made-up studies: they speak where they should, and are silent where they should not."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.special import logit
from scipy.stats import rankdata, t

from search.report.diagnostics import diagnose, edges, first_epochs, nothing_learned, replicates, slopes
from search.trials import record_key, whole_training
from spaces.losses import SPACES
from spaces.space import Choice, Float, Int, Range, Space, Value
from trainables.training.config import TrainingConfig

UNIT = Float(0, 1)


def space(**ranges: Range) -> Space:
    return {name: replace(entry, default=entry.ends[0]) for name, entry in ranges.items()}


def trial(number: int, value: float, params: dict[str, Any], distributions: Space) -> FrozenTrial:
    made = create_trial(
        state=TrialState.COMPLETE,
        value=value,
        params=params,
        distributions={name: distributions[name].distribution for name in params},
    )
    made.number = number
    return made


def study(declared: Space, objective: Callable[[dict[str, Any]], float], trials: int = 32) -> list[FrozenTrial]:
    """A random search without noise to speak of."""
    generator = np.random.default_rng(0)
    sampler = optuna.samplers.RandomSampler(seed=0)
    search = optuna.create_study(sampler=sampler)
    found = []
    for number in range(trials):
        asked = search.ask({name: entry.distribution for name, entry in declared.items()})
        value = objective(asked.params) + generator.normal(0, 0.01)
        found.append(trial(number, value, asked.params, declared))
    return found


def directions(declared: Space, trials: list[FrozenTrial], name: str = "x") -> list[bool]:
    """Whether each edge that is found lies upwards."""
    best = max(trials, key=lambda trial: trial.value or 0.0).params
    found = edges(declared, trials, best, lambda name, beyond: True)
    return ["upwards" in entry.sentence for entry in found if entry.parameters == (name,)]


RISES = [
    (Float(0, 10), lambda x: x / 10),
    (Float(0, 1, step=0.1), lambda x: x),
    (Float(0.01, 1, log=True), lambda x: math.log(x) / math.log(100) + 1),
    (Int(1, 100), lambda x: (x - 1) / 99),
    (Choice((16, 1, 4, 2, 8)), lambda x: math.log2(x) / 4),
]


@pytest.mark.parametrize(("distribution", "place"), RISES)
def test_values_that_rise_to_an_end_are_an_edge(distribution: Range, place: Callable[[Any], float]) -> None:
    """A second parameter has its best value inside."""
    declared = space(x=distribution, y=UNIT)

    def around(centre: float) -> list[FrozenTrial]:
        return study(declared, lambda params: -((place(params["x"]) - centre) ** 2) - (params["y"] - 0.5) ** 2)

    assert directions(declared, around(1.3)) == [True]
    assert directions(declared, around(-0.3)) == [False]
    assert directions(declared, around(0.5)) == []
    assert directions(declared, around(1.3), "y") == []
    asked: list[Value] = []

    def allowed(name: str, beyond: Value) -> bool:
        asked.append(beyond)
        return False

    trials = around(1.3)
    best = max(trials, key=lambda trial: trial.value or 0.0).params
    assert not list(edges(declared, trials, best, allowed)), "the domain's end"
    assert asked
    for beyond in asked:
        assert not declared["x"].contains(beyond), "the domain is asked about a value outside the range"
        assert isinstance(beyond, int) or not isinstance(distribution, Int)


@pytest.mark.parametrize("distribution", [Choice(("a", "b", "c")), Float(2, 2)])
def test_what_has_no_order_or_no_range_has_no_edge(distribution: Range) -> None:
    declared = space(x=distribution, y=UNIT)
    trials = study(declared, lambda params: params["x"] == "c")
    assert directions(declared, trials) == []


def test_a_kind_that_is_better_is_taken_into_account() -> None:
    """One kind is better, and its trials happen to have a larger x, which does nothing."""
    declared = space(x=UNIT, kind=Choice(("a", "b")))
    generator = np.random.default_rng(0)
    params = [{"kind": kind, "x": float(0.4 * (kind == "b") + 0.6 * generator.random())} for kind in "ab" * 16]
    values = [(entry["kind"] == "b") + generator.normal(0, 0.1) for entry in params]
    trials = [trial(n, value, entry, declared) for n, (entry, value) in enumerate(zip(params, values, strict=True))]
    assert directions(declared, trials) == []


def test_a_slope_at_an_end_by_another_fit() -> None:
    generator = np.random.default_rng(1)
    x = generator.random(20)
    order = x + generator.normal(0, 0.3, 20)
    found = slopes(x[:, None], np.zeros((20, 0)), order, 0)
    logits = logit(rankdata(order) / 21)
    (square, line, _), covariance = np.polyfit(x, logits, 2, cov=True)
    for p, sign, end in zip(found or (), (-1, 1), (0, 1), strict=True):
        direction = np.array([2 * end, 1, 0])
        error = np.sqrt(direction @ covariance @ direction)
        assert p == pytest.approx(t.sf(sign * (2 * end * square + line) / error, 17))
    assert slopes(x[:6, None], np.zeros((6, 0)), order[:6], 0) is None, "too few trials"
    assert slopes(np.round(x)[:, None], np.zeros((20, 0)), order, 0) is None, "two places"


def test_a_position_and_its_inverse() -> None:
    for entry in (Float(2, 6), Float(0.01, 100, log=True), Int(1, 5)):
        for value in (entry.low, 3, entry.high):
            assert entry.value_at(entry.position(value)) == pytest.approx(value)
    assert Float(0.01, 100, log=True).position(1) == pytest.approx(0.5)


def test_the_domain_of_a_loss_and_of_the_training_is_known() -> None:
    declared = {**SPACES["proxy_anchor"], **space(**{"training.lr": Float(1e-4, 1e-2, log=True)})}

    def found(sign: float) -> set[tuple[str, ...]]:
        trials = study(
            declared,
            lambda params: sign * (params["margin"] + params["scale"] / 100 + math.log10(params["training.lr"]) / 2),
            64,
        )
        best = max(trials, key=lambda trial: trial.value or 0.0).params
        return {
            entry.parameters for entry in diagnose("proxy_anchor", declared, TrainingConfig(), trials, best, "map_at_r")
        }

    assert ("training.lr",) in found(1)
    assert found(-1) == {("training.lr",)}, "neither a margin nor a scale can be lower"


@pytest.mark.parametrize(
    ("best", "epochs", "is_found"),
    [
        ((1, 2, 1), 20, True),
        ((2, 9, 2), 20, True),
        ((3, 3, 1), 20, False),
        ((1, 1, 4), 4, True),
        ((1, 1, 1), 3, False),  # an epoch is a third of the training
        ((1, 1), 20, False),
    ],
)
def test_best_epochs_that_are_the_first_ones(best: tuple[int, ...], epochs: int, is_found: bool) -> None:
    """A worse trial, whose best epoch is the last one, does not count."""
    trials = []
    for number, peak in enumerate((*best, epochs)):
        entry = trial(number, 0.9 - 0.1 * number, {"x": 0.5}, space(x=UNIT))
        for epoch in range(1, epochs + 1):
            record: Any = {"epoch": epoch, "metrics": {"map_at_r": 1 - abs(epoch - peak) / epochs}}
            entry.user_attrs[record_key(record)] = record
        trials.append(entry)
    trials = trials[: len(best)] + trials[len(best) :] * (len(best) > 2)
    found = [finding.sentence for finding in first_epochs(trials, "map_at_r", epochs)]
    assert len(found) == is_found
    assert all(f"{', '.join(map(str, best[:-1]))} and {best[-1]} of {epochs}" in sentence for sentence in found)


@pytest.mark.parametrize(
    ("losses", "is_found"), [((0.0, 0.0), True), ((0.0, 0.1), False), ((None, None), False), ((), False)]
)
def test_a_loss_of_zero_in_all_epochs_is_told(losses: tuple[float | None, ...], is_found: bool) -> None:
    """A user-defined training may report no loss."""
    idle, good = (trial(number, 0.5, {"x": 0.5}, space(x=UNIT)) for number in range(2))
    for entry, values in ((idle, losses), (good, (0.3, 0.2))):
        for epoch, loss in enumerate(values, start=1):
            record: Any = {"epoch": epoch, "metrics": {}} | ({} if loss is None else {"loss": loss})
            entry.user_attrs[record_key(record)] = record
    found = [finding.sentence for finding in nothing_learned([idle, good])]
    assert len(found) == is_found
    assert all("the loss of 1 of 2 complete trials was 0 in all epochs" in sentence for sentence in found)
    assert whole_training(idle, 2).endswith("nothing was learned") == is_found
    assert whole_training(good, 2) == "all 2 epochs trained"


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
