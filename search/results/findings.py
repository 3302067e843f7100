"""Findings about the study of a loss: best values at the end of a range, early best epochs, no learning."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.results.summary import Finding
from search.trials import best_epochs, epochs_of, is_constant, learned_nothing
from spaces.space import Choice, Float, Int, Params, Range, Space, Value
from trainables.common.errors import counted
from trainables.losses import LOSSES
from trainables.metrics import is_bounded, score_text
from trainables.training.training_config import TrainingConfig

# Edges: the best configuration is at an end of a range, so the range may be too small.

NEAR = 0.05
"""The part of a range that is its end.

In searches of 32 trials by TPE with halving, with little and with much noise, the best trial is there in 4 and 5 % if
the parameter has no effect, in 10 and 20 % if its optimum is at 85 % of the range, in 51 and 30 % if it is at the very
end, and in 85 and 58 % if it is beyond (``python -m benchmarks statistics``).
"""


def edges(space: Space, best: Mapping[str, Value], allowed: Callable[[str, Value], bool]) -> Iterator[Finding]:
    """Yield a finding for each parameter that ``best`` has at an end of its range, unless that is its default.

    Ends that coincide with the end of the parameter's domain are skipped: ``allowed`` returns True if a parameter may
    have a value, inside its range or outside.
    """
    for name, value in best.items():
        found = _end_near(space[name], value)
        if found is None or value == space[name].default:
            continue
        upwards, end, beyond = found
        if allowed(name, beyond):
            direction, its_end = ("upwards", "high") if upwards else ("downwards", "low")
            yield Finding(
                kind="edge",
                parameters=(name,),
                sentence=f"the best {name}, {value:.4g}, is at the {its_end} end of its range, {end:.4g}: a new search "
                f"may widen it {direction}",
            )


def _end_near(entry: Range, value: Any) -> tuple[bool, float, float] | None:
    """Return True for the high end that ``value`` is near, that end, and a value beyond it; None if it is near none.

    In a list of three or more numbers, a value's place is its position; constants and other lists have no ends. Beyond
    an end is one step or a hundredth of the range.
    """
    numbers: list[float] = []
    if isinstance(entry, Choice) and len(entry.numbers) >= max(3, len(entry.choices)):
        numbers = entry.numbers
        place = numbers.index(value) / (len(numbers) - 1)
    elif isinstance(entry, Float) and not entry.is_single:
        place = entry.position(value)
    else:
        return None
    if NEAR < place < 1 - NEAR:
        return None
    upwards = place > 0.5
    if numbers:
        end, before = (numbers[-1], numbers[-2]) if upwards else (numbers[0], numbers[1])
        gap = 1 if isinstance(end, int) else abs(end - before)
        return upwards, end, end + (gap if upwards else -gap)
    assert isinstance(entry, Float)
    end = entry.high if upwards else entry.low
    if isinstance(entry, Int):
        return upwards, end, end + (1 if upwards else -1)
    step = entry.step / (entry.high - entry.low) if entry.step else 0.01
    return upwards, end, entry.value_at(1 + step if upwards else -step)


# Best epochs that are the first ones (the networks soon fit the training classes alone) or the last.

EARLY = 0.1
"""The share of a training that counts as its first epochs."""

BEST_TRIALS = 3


def extreme_epochs(
    complete: Sequence[FrozenTrial], objective: str, epochs: int, high_rates: Sequence[str] = ()
) -> Iterator[Finding]:
    """Yield a finding if the best epochs of the best trials are the last, or most in the first tenth or the first.

    ``epochs`` is the length of a training; nothing is found in trainings of fewer than four, or of fewer than three
    complete trials. ``high_rates`` are the learning rates that the best trial has at the high end of their ranges.
    """
    best = sorted(complete, key=lambda trial: -(trial.value or 0.0))[:BEST_TRIALS]
    found = [epoch for trial in best for epoch in best_epochs(epochs_of(trial), objective)]
    if epochs < 4 or len(found) < BEST_TRIALS:
        return
    if min(found) == epochs:
        too = f", as the high {' and '.join(high_rates)} may be for lack of epochs" if high_rates else ""
        yield Finding(
            kind="last_epochs",
            parameters=tuple(high_rates),
            sentence=f"the best epochs of the {len(best)} best trials are the last of {epochs}{too}: longer trainings "
            "(training.epochs) may give more",
        )
    if statistics.median(found) > max(1, EARLY * epochs):
        return
    shown = f"{', '.join(map(str, found[:-1]))} and {found[-1]}"
    yield Finding(
        kind="first_epochs",
        parameters=(),
        sentence=f"the best epochs of the {len(best)} best trials are {shown} of {epochs}, after which validation "
        "falls: fewer epochs (training.epochs), or lower learning rates, may give the same or better",
    )


def nothing_learned(complete: Sequence[FrozenTrial], objective: str, *, own: bool) -> Iterator[Finding]:
    """Yield a finding if trials of a training (user-defined: ``own``) had a loss of 0, or all have one validation."""
    count, records = counted(len(complete), "complete trial"), [record for of in complete for record in epochs_of(of)]
    fix = "check that the training changes the model that embeds"
    if idle := sum(learned_nothing(trial, own=own) for trial in complete):
        what = f"the loss of {idle} of {count} was 0 in all epochs, so nothing was learned and their values are luck"
        batches = "training.sampler, training.batch_size, training.images_per_class or the margins"
        fix = fix if own else f"no batch has a pair or triplet that counts, or margins are met; change {batches}"
    elif len(records) > 2 and is_constant(records) and not (is_bounded(objective) and complete[0].value == 1):
        value = score_text(objective, complete[0].value)
        what = f"the validation of {count} is {objective} {value} in all epochs, however they train"
        fix = fix if own else "raise training.lr"
    else:
        return
    yield Finding(kind="nothing_learned", parameters=(), sentence=f"{what}: {fix}")


def diagnose(
    loss: str | None,
    space: Space,
    training: TrainingConfig,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value] | None,
    objective: str,
) -> tuple[Finding, ...]:
    """Return the findings about a search study of ``loss``, which is None for a user-defined training."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    nothing = tuple(nothing_learned(complete, objective, own=loss is None))
    ends = {name: _end_near(space[name], value) for name, value in (best or {}).items() if name.endswith("lr")}
    high_rates = [name for name, end in ends.items() if end and end[0]]
    return (
        *edges(space, best or {}, lambda name, value: _allowed(loss, training, name, value)),
        *(nothing or extreme_epochs(complete, objective, training.epochs, high_rates)),
    )


def _allowed(loss: str | None, training: TrainingConfig, name: str, value: Value) -> bool:
    configuration = Params({name: value})
    if loss is None:  # only its author knows
        return True
    try:
        LOSSES[loss](num_classes=2, embedding_dim=2, **configuration.loss)
        replace(training, **configuration.training)
    except ValueError:
        return False
    return True
