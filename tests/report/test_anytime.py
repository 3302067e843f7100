"""Incumbents of a study."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState, create_trial

from search.report.loss_results import Incumbent
from search.report.summary import incumbents
from search.trials import record_key, running_value
from trainables.spec import EpochRecord


def trial(number: int, state: TrialState, epochs: list[tuple[float, float]]) -> FrozenTrial:
    """A trial with epochs given as (end, value)."""
    records = [
        EpochRecord(
            epoch=epoch, loss=1.0, batches=5, metrics={"map_at_r": value}, start=end - 1, end=end, checkpoint=None
        )
        for epoch, (end, value) in enumerate(epochs, start=1)
    ]
    made = create_trial(
        state=state,
        value=max(value for _, value in epochs) if state == TrialState.COMPLETE else None,
        user_attrs={record_key(record): record for record in records},
    )
    made.number = number
    return made


TRIALS = [
    trial(0, TrialState.COMPLETE, [(2.0, 0.1), (5.0, 0.4), (9.0, 0.3)]),
    trial(1, TrialState.PRUNED, [(3.0, 0.2), (4.0, 0.1)]),
    trial(2, TrialState.COMPLETE, [(6.0, 0.3), (7.0, 0.5), (8.0, 0.5)]),
]


def best_so_far(records: Sequence[EpochRecord]) -> float | None:
    return running_value(records, "map_at_r")


def test_incumbents_follow_the_clock_over_all_trials() -> None:
    found = incumbents(TRIALS, best_so_far, {0: 0.35, 2: 0.45})
    assert found == (
        Incumbent(epochs=1, value=0.1, trial=0, confirmed=0.35),
        Incumbent(epochs=2, value=0.2, trial=1, confirmed=None),
        Incumbent(epochs=4, value=0.4, trial=0, confirmed=0.35),
        Incumbent(epochs=6, value=0.5, trial=2, confirmed=0.45),
    )


def test_before_the_first_value_there_is_no_incumbent() -> None:
    found = incumbents(TRIALS[2:], lambda records: 0.4 if len(records) == 3 else None, {})
    assert found == (Incumbent(epochs=3, value=0.4, trial=2, confirmed=None),)


def test_nothing_trained_has_no_incumbent() -> None:
    assert incumbents([], best_so_far, {}) == ()
