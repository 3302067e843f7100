"""Diagnostics on made-up studies: they speak where they should, and are silent where they should not."""

from dataclasses import replace
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.report.loss_results import diagnose, edges, first_epochs, nothing_learned
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


def directions(declared: Space, best: dict[str, Value]) -> dict[str, bool]:
    """Return for each edge if it is the high end."""
    found = edges(declared, best, lambda name, beyond: True)
    return {entry.parameters[0]: "upwards" in entry.sentence for entry in found}


@pytest.mark.parametrize(
    ("entry", "low", "inside", "high"),
    [
        (Float(0, 10), 0.4, 5, 9.6), (Float(0, 1, step=0.1), 0.0, 0.9, 1.0),
        (Float(0.01, 1, log=True), 0.011, 0.04, 0.9), (Int(1, 100), 3, 50, 97), (Choice((16, 1, 4, 2, 8)), 1, 8, 16),
    ],
)  # fmt: skip
def test_a_best_value_at_an_end_is_an_edge(entry: Range, low: Value, inside: Value, high: Value) -> None:
    declared = {"x": replace(entry, default=inside), "y": replace(UNIT, default=0.5)}
    assert directions(declared, {"x": low, "y": 0.4}) == {"x": False}
    assert directions(declared, {"x": inside, "y": 0.4}) == {}
    assert directions(declared, {"x": high, "y": 0.4}) == {"x": True}
    assert directions({"x": replace(entry, default=high)}, {"x": high}) == {}, "the papers' value"
    asked: list[Value] = []

    def allowed(name: str, beyond: Value) -> bool:
        asked.append(beyond)
        return False

    assert not [*edges(declared, {"x": low}, allowed), *edges(declared, {"x": high}, allowed)], "the domain's ends"
    assert len(asked) == 2
    for beyond in asked:
        assert not declared["x"].contains(beyond), "the domain is asked about a value outside the range"
        assert isinstance(beyond, int) or not isinstance(entry, Int)


def test_a_position_and_its_inverse_and_what_has_none() -> None:
    for entry in (Float(2, 6), Float(0.01, 100, log=True), Int(1, 5)):
        for value in (entry.low, 3, entry.high):
            assert entry.value_at(entry.position(value)) == pytest.approx(value)
    assert Float(0.01, 100, log=True).position(1) == pytest.approx(0.5)
    for entry in (Choice(("a", "b", "c")), Float(2, 2)):
        assert directions(space(x=entry, y=UNIT), {"x": entry.ends[-1], "y": 0.5}) == {}, "neither order nor range"


def test_the_domain_of_a_loss_and_of_the_training_is_known() -> None:
    declared = {**SPACES["proxy_anchor"], **space(**{"training.lr": Float(1e-4, 1e-2, log=True)})}

    def found(end: int) -> set[tuple[str, ...]]:
        best = {name: entry.ends[end] for name, entry in declared.items()}
        others = {name: replace(entry, default=entry.ends[-1 - end]) for name, entry in declared.items()}
        findings = diagnose("proxy_anchor", others, TrainingConfig(), [], best, "map_at_r")
        return {entry.parameters for entry in findings}

    assert ("training.lr",) in found(-1)
    assert found(0) == {("training.lr",)}, "neither a margin nor a scale can be lower"


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
