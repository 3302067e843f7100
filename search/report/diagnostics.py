"""Findings about a study: edges of ranges, replicates, noise, and the audit of pruning."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from search.plan.plan import Plan
from search.report.results import Detectable, Finding, NoiseSummary, PruningAudit
from search.report.statistics import minimum_detectable_difference
from search.selection import finalists
from search.trials import by_params, epochs_of, mean_value
from spaces.space import Parameter, Params, Space, Value, position, value_at
from trainables.losses import LOSSES
from trainables.training.config import TrainingConfig

# A value that still rises where a range ends: the range may be too small.
#
# That the best trial lies at an end says little, so all trials are asked: those that got furthest first, then by value,
# their ranks as logits are fitted by a quadratic in every parameter. Of searches of 32 trials by TPE with halving, with
# little and with much noise, this speaks in 0 and 1 % where the parameter does nothing, in 1 % where its optimum lies
# inside at 85 % of the range, in 38 and 1 % where it lies at the very end and in 93 and 32 % where it lies beyond. "The
# best lies within 5 % of the end" speaks in 4 and 5, 10 and 20, 51 and 30, and 85 and 58 % (``make bench-statistics``).
#
# Shapes: N trials, P columns of the fit.

Floats = NDArray[np.float64]

LEVEL = 0.05
MIN_FREEDOM = 4
MIN_PLACES = 3


def edges(
    space: Space,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value],
    allowed: Callable[[str, Value], bool],
) -> Iterator[Finding]:
    """The parameters of ``best`` along which the values of a study still rise at an end of their range.

    The slope of the fit at that end is positive at 5 % (one-sided t, divided by the number of parameters), and the best
    configuration lies in the half of the range before it. Nothing is said of an end beyond which the parameter's domain
    does not reach, nor where there are fewer than four trials more than the fit has columns.

    Args:
        space: what was searched.
        trials: the study's.
        best: the best configuration.
        allowed: whether a parameter may have a value at all, inside its range or outside.
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
    """The one-sided p-values of rising towards the low and the high end of one column of ``places_NP``, from 0 to 1.

    ``order_N`` is higher where a trial is better. None where there are too few trials for the fit, or all
    of them lie at two places.
    """
    from scipy.special import stdtr  # not before there is a study to fit
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
    """A number a trial, higher for one that got further, and of those for one of higher value."""
    keys = [(max(trial.intermediate_values, default=0), trial.value or 0.0) for trial in trials]
    ranked = {key: place for place, key in enumerate(sorted(set(keys)))}
    return np.array([float(ranked[key]) for key in keys])


def _indicators(trials: Sequence[FrozenTrial], names: Sequence[str]) -> Floats:
    """A column for each value but the first of each of the parameters that are no numbers."""
    columns = [np.zeros((len(trials), 0))]
    for name in names:
        values = [trial.params.get(name) for trial in trials]
        kinds = list(dict.fromkeys(values))[1:]
        columns.append(np.array([[float(value == kind) for kind in kinds] for value in values]))
    return np.concatenate(columns, axis=1)


def _places(parameter: Parameter) -> Callable[[Value], float] | None:
    """Where a value lies in the range, from 0 to 1; of a list of three or more numbers, by its place among them."""
    distribution = parameter.distribution
    if distribution.single():
        return None
    if isinstance(distribution, CategoricalDistribution):
        numbers = _numbers(distribution)
        return (lambda value: numbers.index(value) / (len(numbers) - 1)) if numbers else None  # type: ignore[arg-type]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return lambda value: position(distribution, value)  # type: ignore[arg-type]


def _numbers(distribution: CategoricalDistribution) -> list[float]:
    """The choices in order, where they are three or more numbers."""
    numbers = sorted(
        entry for entry in distribution.choices if isinstance(entry, int | float) and not isinstance(entry, bool)
    )
    return numbers if len(numbers) >= max(3, len(distribution.choices)) else []


def _end(parameter: Parameter, upwards: bool) -> float:
    distribution = parameter.distribution
    if isinstance(distribution, CategoricalDistribution):
        return _numbers(distribution)[-1 if upwards else 0]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return distribution.high if upwards else distribution.low


def _beyond(parameter: Parameter, upwards: bool) -> float:
    """A value beyond an end, a step or a hundredth of the range away."""
    distribution, end = parameter.distribution, _end(parameter, upwards)
    if isinstance(distribution, CategoricalDistribution):
        numbers = _numbers(distribution)
        gap = 1 if isinstance(end, int) else abs(end - numbers[-2 if upwards else 1])
        return end + gap if upwards else end - gap
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if isinstance(distribution, IntDistribution):
        return end + 1 if upwards else end - 1
    step = distribution.step / (distribution.high - distribution.low) if distribution.step else 0.01
    return value_at(distribution, 1 + step if upwards else -step)


# Trials with equal parameters: what differs between them is noise.


def replicates(trials: Sequence[FrozenTrial]) -> Iterator[Finding]:
    """The pooled standard deviation of complete trials with equal parameters and different seeds.

    √(Σ (n − 1) s² / Σ (n − 1)) over the configurations, with n trials of variance s² each.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
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


# All that a loss's study says about itself.


def diagnose(
    loss: str,
    space: Space,
    training: TrainingConfig,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value] | None,
) -> tuple[Finding, ...]:
    """The findings about a search study of ``loss``; none where it is too small to say anything."""
    findings = tuple(replicates(trials))
    if best is None:
        return findings
    return (*edges(space, trials, best, lambda name, value: _allowed(loss, training, name, value)), *findings)


def _allowed(loss: str, training: TrainingConfig, name: str, value: Value) -> bool:
    configuration = Params({name: value})
    try:
        LOSSES[loss](num_classes=2, embedding_dim=2, **configuration.loss)
        replace(training, **configuration.training)
    except ValueError:
        return False
    return True


# How much a result moves when nothing about the configuration changes: other seeds, and other class splits.

COVERS = (
    "It covers initial weights, batches and augmentation of this one configuration on the validation classes; it does "
    "not cover other configurations or losses, the luck of the best of many trials, or the test classes."
)


def noise_summary(plan: Plan, trials: Sequence[FrozenTrial]) -> NoiseSummary | None:
    """What the noise stage came to, from the trials of its study; None before one of the search's split is complete."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    values = tuple(trial.values[0] for trial in complete if trial.user_attrs["split"] == 0)
    if not values:
        return None
    seed = trials[0].user_attrs["seed"]
    split_values = tuple(trial.values[0] for trial in complete if trial.user_attrs["seed"] == seed)
    std = _deviation(values)
    return NoiseSummary(
        loss=plan.config.noise_loss,
        params=dict(complete[0].params),
        mean=statistics.fmean(values),
        values=values,
        std=std,
        split_values=split_values,
        split_std=_deviation(split_values),
        detectable=_detectable(std, plan),
        covers=COVERS,
    )


def _detectable(std: float | None, plan: Plan) -> Detectable:
    """Of the table of this search alone: each loss tuned and its default, and the tuned losses beside each other."""
    losses, seeds = len(plan.config.loss_names), plan.config.final.seeds
    pairs = losses + losses * (losses - 1) // 2
    difference = None
    if std is not None:
        difference = minimum_detectable_difference(std, seeds=seeds, rows=2 * losses, pairs=pairs)
    return Detectable(seeds=seeds, pairs=pairs, difference=difference)


def _deviation(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


# What a search's pruning was worth.


def pruning_audit(
    searched: Sequence[FrozenTrial], audited: Sequence[FrozenTrial], *, places: int, epochs: int
) -> PruningAudit | None:
    """The audit of a loss; None before one of its trainings is complete, or where nothing else is.

    Args:
        searched: the trials of the search.
        audited: the pruned ones of them that were trained again.
        places: how many finalists there are.
        epochs: of a whole training.
    """
    values = [trial.value for trial in audited if trial.state == TrialState.COMPLETE and trial.value is not None]
    if not values:
        return None
    best = [mean_value(searched, trial.params) for trial in finalists(searched, places)[:places]]
    known = [value for value in best if value is not None]
    if not known:
        return None
    from scipy.stats import binomtest  # half a second, for those who audit

    pruned = [trial for trial in searched if trial.state == TrialState.PRUNED]
    bar = min(known)
    wrongly = sum(value >= bar for value in values)
    low, high = binomtest(wrongly, len(values)).proportion_ci()
    return PruningAudit(
        pruned=len(pruned),
        epochs_saved=sum(epochs - len(epochs_of(trial)) for trial in pruned),
        audited=len(values),
        bar=bar,
        wrongly=wrongly,
        ci95=(float(low), float(high)),
        best=max(values),
    )
