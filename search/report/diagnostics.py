"""Findings about a study: edges of ranges, best epochs that are the first ones, and replicates."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.trial import FrozenTrial, TrialState

from search.difference import LEVEL
from search.report.loss_results import Finding
from search.trials import best_epochs, by_params, epochs_of, learned_nothing
from spaces.space import Choice, Float, Int, Params, Range, Space, Value
from trainables.errors import counted
from trainables.losses import LOSSES
from trainables.training.config import TrainingConfig

# Edges: the objective still improves at an end of a range, so the range may be too small.
#
# The position of the best trial alone is weak evidence, so all trials are used: they are ordered by the epochs reached
# and then by value, and the logits of their ranks are fitted by a quadratic in each parameter. In searches of 32 trials
# by TPE with halving, with little and with much noise, the finding appears in 0 and 1 % if the parameter has no effect,
# in 1 % if its optimum is inside at 85 % of the range, in 38 and 1 % if it is at the very end, and in 93 and 32 % if it
# is beyond. "The best is within 5 % of the end" appears in 4 and 5, 10 and 20, 51 and 30, and 85 and 58 %
# (``python -m benchmarks statistics``).
#
# Shapes: N trials, P columns of the fit, K indicators.

Floats = NDArray[np.float64]

MIN_FREEDOM = 4
MIN_PLACES = 3


def edges(
    space: Space, trials: Sequence[FrozenTrial], best: Mapping[str, Value], allowed: Callable[[str, Value], bool]
) -> Iterator[Finding]:
    """Yield a finding for each parameter of ``best`` along which values still rise at an end of its range.

    The slope of the fit at that end is positive at 5 % (one-sided t, divided by the number of parameters), and the best
    configuration is in the half of the range next to it. Ends that coincide with the end of the parameter's domain are
    skipped, and so are fits with fewer than four trials more than columns.

    Args:
        space: the space that was searched.
        trials: trials of the study.
        best: the best configuration.
        allowed: returns True if a parameter may have a value, inside its range or outside.
    """
    compared = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    ranges = {name: entry for name in best if (entry := _places(space[name])) is not None}
    for name, places in ranges.items():
        having = [trial for trial in compared if name in trial.params]
        others = [other for other in ranges if all(other in trial.params for trial in having)]
        kinds = [other for other in best if other not in ranges]
        columns = np.array([[ranges[other](trial.params[other]) for other in others] for trial in having])
        tests = slopes(columns, _indicators(having, kinds), _order(having), others.index(name))
        for upwards, p in zip((False, True), tests or (), strict=False):
            towards = places(best[name]) if upwards else 1 - places(best[name])
            if p > LEVEL / len(ranges) or towards < 0.5 or not allowed(name, _beyond(space[name], upwards)):
                continue
            direction, its_end = ("upwards", "high") if upwards else ("downwards", "low")
            yield Finding(
                kind="edge",
                parameters=(name,),
                sentence=f"the values still rise towards the {its_end} end of the range of {name}, "
                f"{_end(space[name], upwards):.4g} (p {p:.1g}; the best has {best[name]:.4g}): a new search should "
                f"widen it {direction}",
            )


def slopes(places_NP: Floats, indicators_NK: Floats, order_N: Floats, column: int) -> tuple[float, float] | None:
    """Return the one-sided p-values of rising towards the low and the high end of one column of ``places_NP``.

    Places are from 0 to 1, and ``order_N`` is higher for better trials. None if there are too few trials for the fit or
    at most two different places.
    """
    from scipy.special import stdtr  # slow to import
    from scipy.stats import rankdata

    design_NP = np.column_stack([np.ones(len(order_N)), places_NP, places_NP**2, indicators_NK])
    freedom = len(order_N) - np.linalg.matrix_rank(design_NP)
    if freedom < MIN_FREEDOM or len(np.unique(places_NP[:, column])) < MIN_PLACES:
        return None
    shares_N = rankdata(order_N) / (len(order_N) + 1)
    logits_N = np.log(shares_N / (1 - shares_N))
    inverse_PP = np.linalg.pinv(design_NP.T @ design_NP)
    fitted_P = inverse_PP @ design_NP.T @ logits_N
    variance = float(((logits_N - design_NP @ fitted_P) ** 2).sum()) / freedom
    found = []
    for sign, end in ((-1.0, 0.0), (1.0, 1.0)):
        slope_P = np.zeros(design_NP.shape[1])
        slope_P[1 + column], slope_P[1 + places_NP.shape[1] + column] = sign, sign * 2 * end
        error = math.sqrt(variance * float(slope_P @ inverse_PP @ slope_P))
        found.append(float(stdtr(freedom, -float(slope_P @ fitted_P) / error)) if error else 1.0)
    return found[0], found[1]


def _order(trials: Sequence[FrozenTrial]) -> Floats:
    """Return a number per trial, higher for trials that reached more steps, then for higher values."""
    keys = [(max(trial.intermediate_values, default=0), trial.value or 0.0) for trial in trials]
    ranked = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([float(ranked[key]) for key in keys])


def _indicators(trials: Sequence[FrozenTrial], names: Sequence[str]) -> Floats:
    """Return indicators of each value but the first of each categorical parameter."""
    columns = [np.zeros((len(trials), 0))]
    for name in names:
        values = [trial.params.get(name) for trial in trials]
        kinds = list(dict.fromkeys(values))[1:]
        columns.append(np.array([[float(value == kind) for kind in kinds] for value in values]))
    return np.concatenate(columns, axis=1)


def _places(entry: Range) -> Callable[[Value], float] | None:
    """Return a function from value to place in the range, 0 to 1; None for constants and for non-numeric choices.

    In a list of three or more numbers, the place is the position in the list.
    """
    if entry.is_single:
        return None
    if isinstance(entry, Choice):
        numbers = _numbers(entry)
        return (lambda value: numbers.index(value) / (len(numbers) - 1)) if numbers else None  # type: ignore[arg-type]
    assert isinstance(entry, Float)
    return entry.position


def _numbers(entry: Choice) -> list[float]:
    """Return the choices in order if they are three or more numbers, else none."""
    return entry.numbers if len(entry.numbers) >= max(3, len(entry.choices)) else []


def _end(entry: Range, upwards: bool) -> float:
    ends: Sequence[Any] = _numbers(entry) if isinstance(entry, Choice) else entry.ends
    return float(ends[-1 if upwards else 0])


def _beyond(entry: Range, upwards: bool) -> float:
    """Return a value beyond an end, one step or a hundredth of the range away."""
    sign = 1 if upwards else -1
    if isinstance(entry, Choice):
        numbers = _numbers(entry)
        end = numbers[-1 if upwards else 0]
        return end + sign * (1 if isinstance(end, int) else abs(end - numbers[-2 if upwards else 1]))
    assert isinstance(entry, Float)
    if isinstance(entry, Int):
        return entry.high + 1 if upwards else entry.low - 1
    step = entry.step / (entry.high - entry.low) if entry.step else 0.01
    return entry.value_at(1 + step if upwards else -step)


def _complete(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.state == TrialState.COMPLETE]


# Best epochs that are the first ones: the networks soon fit the training classes alone.

EARLY = 0.1
"""The share of a training that counts as its first epochs."""

BEST_TRIALS = 3


def first_epochs(trials: Sequence[FrozenTrial], objective: str, epochs: int) -> Iterator[Finding]:
    """Yield a finding if the best epoch of most of the best trials is in the first tenth, or is the first.

    ``epochs`` is the length of a training; nothing is found in trainings of fewer than four, or of fewer than three
    complete trials.
    """
    complete = _complete(trials)
    best = sorted(complete, key=lambda trial: -(trial.value or 0.0))[:BEST_TRIALS]
    found = [epoch for trial in best for epoch in best_epochs(epochs_of(trial), objective)]
    if epochs < 4 or len(found) < BEST_TRIALS or statistics.median(found) > max(1, EARLY * epochs):
        return
    shown = f"{', '.join(map(str, found[:-1]))} and {found[-1]}"
    yield Finding(
        kind="first_epochs",
        parameters=(),
        sentence=f"the best epochs of the {len(best)} best trials are {shown} of {epochs}, after which validation "
        "falls: fewer epochs (training.epochs), or lower learning rates, may give the same or better",
    )


def nothing_learned(trials: Sequence[FrozenTrial]) -> Iterator[Finding]:
    """Yield a finding if the loss of complete trials was 0 in every epoch."""
    complete = _complete(trials)
    if idle := sum(map(learned_nothing, complete)):
        yield Finding(
            kind="nothing_learned",
            parameters=(),
            sentence=f"the loss of {idle} of {counted(len(complete), 'complete trial')} was 0 in all epochs, so "
            "nothing was learned and their values are luck: no batch has a pair or triplet that counts, or "
            "margins are met; change training.sampler, training.batch_size, training.images_per_class or the margins",
        )


# Replicates: trials with equal parameters, which differ by noise only.


def replicates(trials: Sequence[FrozenTrial]) -> Iterator[Finding]:
    """Yield a finding with the pooled standard deviation of complete trials with equal parameters.

    It is √(Σ (n − 1) s² / Σ (n − 1)) over the configurations, with n trials of variance s² each.
    """
    complete = _complete(trials)
    groups = [[trial.value or 0.0 for trial in group] for group in by_params(complete) if len(group) > 1]
    if not groups:
        return
    freedom = sum(len(values) - 1 for values in groups)
    squares = sum((len(values) - 1) * statistics.variance(values) for values in groups)
    again = f"{len(groups)} configuration{'s were' if len(groups) > 1 else ' was'} trained more than once"
    yield Finding(
        kind="replicates",
        parameters=(),
        sentence=f"{again}: the value of one training has a standard deviation of {math.sqrt(squares / freedom):.4f} "
        f"({freedom} degree{'s' if freedom > 1 else ''} of freedom)",
    )


def diagnose(
    loss: str | None,
    space: Space,
    training: TrainingConfig,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value] | None,
    objective: str,
) -> tuple[Finding, ...]:
    """Return the findings about a search study of ``loss``; none if it is too small.

    ``loss`` is None for a user-defined training.
    """
    findings = (*nothing_learned(trials), *first_epochs(trials, objective, training.epochs), *replicates(trials))
    if best is None:
        return findings
    return (*edges(space, trials, best, lambda name, value: _allowed(loss, training, name, value)), *findings)


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
