"""The summary of a search, derived from its records alone, with findings about the study of each loss."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.goal import Goal
from search.records import Baselines, Confirmation, ScoredOpening, confirmations
from search.records.plan import Plan
from search.records.records import Records
from search.results.rows import Row, SeedOutcomes, SeedStatistics
from search.results.statistics import over_seeds
from search.results.summary import (
    Baseline,
    BestTrial,
    Finding,
    Incumbent,
    LossSummary,
    SplitSummary,
    Summary,
    TimeSummary,
    TrialCounts,
)
from search.stages import BASELINES, UNTRAINED, WHITENED, Role, Stage
from search.trials import Tally, best_epochs, epochs_of, is_constant, learned_nothing, running_value
from spaces.space import Choice, Float, Params, Range, Space, Value
from trainables.common.errors import InvalidInput, counted
from trainables.losses import LOSSES
from trainables.metrics import is_bounded, score_text
from trainables.training.spec import EpochRecord
from trainables.training.training_config import TrainingConfig

Trials = Mapping[Stage, Sequence[FrozenTrial]]
"""The trials of one loss in each stage."""


def written_before(path: Path) -> Summary | None:
    """Return the summary that was written last; None if there is none that this version can read."""
    try:
        return Summary.load(path) if path.exists() else None
    except InvalidInput:
        return None


def summarise(search: Records, stored: Summary | None = None) -> Summary:
    """Return the summary according to the studies, the selection and the test results.

    The diagnostics of a loss with unchanged trials are taken from the previous summary, ``stored``.
    """
    plan = search.plan
    config, split = plan.config, plan.split
    selection, test = search.selection, search.openings
    trials: dict[str, Trials] = {
        loss: {stage: search.trials(loss, stage) for stage in Stage} for loss in config.loss_names
    }
    baselines = _baselines(search.baselines, test)
    return Summary(
        name=config.name,
        split=SplitSummary(
            digest=split.digest,
            train_classes=len(split.train),
            validation_classes=len(split.validation),
            training_half=config.metrics.gallery == "training_half",
            test_classes=split.test_classes,
            folds=len(split.folds) or None,
            halves=plan.on_halves,
            merge=split.merge,
            label_noise=split.label_noise,
            marks=tuple(name for name, _ in split.marks),
        ),
        objective=config.objective,
        test_opened=len(search.ledger.of_selection(selection.digest)) if selection else 0,
        test_overlap=test[0].overlap if test else None,
        untrained=baselines.get(UNTRAINED),
        whitened=baselines.get(WHITENED),
        recommended=selection.recommended if selection else None,
        losses={
            loss: _loss_summary(search, loss, of_loss, stored.losses.get(loss) if stored else None)
            for loss, of_loss in trials.items()
        },
        time=_time_summary(search, list(trials.values())),
    )


def _baselines(stored: Baselines | None, test: Sequence[ScoredOpening]) -> dict[str, Baseline]:
    if stored is None:
        return {}
    scored = {entry.name: entry.metrics for opening in test[:1] for entry in opening.baselines}
    found: dict[str, Baseline] = {}
    for name in BASELINES:
        metrics = scored.get(name, {}).items()
        found[name] = Baseline(
            validation=stored.validation[name],
            confirmed=statistics.fmean(classes.values()) if (classes := stored.classes[name]) else None,
            test={key: value if value is None else SeedStatistics.fixed(value) for key, value in metrics} or None,
        )
    return found


def _loss_summary(search: Records, loss: str, trials: Trials, stored: LossSummary | None) -> LossSummary:
    plan, selection = search.plan, search.selection
    searched, confirmed, objective = trials[Stage.SEARCH], trials[Stage.SELECT], plan.config.objective
    tally = Tally.of(searched)
    complete = [trial for trial in searched if trial.state == TrialState.COMPLETE]
    best = _best(complete, plan.config.goal)
    chosen = selection.chosen.get(loss) if selection else None
    default = selection.defaults.get(loss) if selection else None
    if selection is None and complete and confirmed:
        default = confirmations(searched, confirmed, [0], objective)[0]
    space = plan.spaces[loss]
    tuned = chosen or best
    row = partial(_row, search, loss, trials)
    summary = LossSummary(
        trials=TrialCounts(complete=tally.complete, pruned=tally.pruned, failed=tally.failed),
        epochs=tally.epochs,
        ended_early=plan.budget(loss).early_end(searched),
        default=row(Role.DEFAULT, default, 0, dict(space.default)),
        tuned=row(Role.TUNED, chosen, tuned.number if tuned else None, tuned.params if tuned else None),
        best=best,
        choice=selection.reasons.get(loss) if selection else None,
        anytime=incumbents(searched, partial(_value, plan)),
        diagnostics=(),
    )
    # Unchanged trials have unchanged diagnostics, and computing these imports torch.
    if stored is not None and stored.model_copy(update={"diagnostics": ()}) == summary:
        return stored
    found = diagnose(
        None if plan.config.trainable else plan.config.loss(loss).key,
        space.parameters,
        plan.config.training_of(loss),
        searched,
        summary.tuned.params,
        objective,
    )
    return summary.model_copy(update={"diagnostics": found})


def _row(
    search: Records,
    loss: str,
    trials: Trials,
    role: Role,
    confirmation: Confirmation | None,
    number: int | None,
    params: Mapping[str, Value] | None,
) -> Row:
    """Return a row of the result table; everything after the search needs the ``confirmation``."""
    plan = search.plan
    complete = [trial for trial in trials[Stage.SEARCH] if trial.state == TrialState.COMPLETE]
    row = Row(
        search=plan.config.name,
        loss=loss,
        role=role,
        number=number,
        params=params,
        search_value=next((trial.value for trial in complete if trial.number == number), None),
        clipped=bool(plan.spaces[loss].clipped) and number == 0,
    )
    if confirmation is None:
        return row
    confirmed, final = (
        [trial for trial in trials[stage] if trial.user_attrs["source_trial"] == confirmation.number]
        for stage in (Stage.SELECT, Stage.TEST)
    )
    models = [
        model
        for opening in search.openings[:1]
        for model in opening.scores
        if (model.loss, model.source_trial) == (loss, confirmation.number)
    ]
    trained = [(trial, trial.user_attrs["seed"]) for trial in final if trial.state == TrialState.COMPLETE]
    kept = [([record for record in epochs_of(trial) if record["checkpoint"]], seed) for trial, seed in trained]
    validates = plan.config.final.train_on != "all"
    tested = {
        name: _over(((of.metrics[name], of.seed) for of in models), partial(over_seeds, bounded=is_bounded(name)))
        for first in models[:1]
        for name in first.metrics
    }
    return row.model_copy(
        update={
            "confirmed": SeedStatistics.over(confirmation.values) if confirmation.values else None,
            "final": _over((trial.value, seed) for trial, seed in trained if validates),  # each at its best epoch
            "test": tested if models else None,
            "distinct_proxies": _over((records[-1].get("distinct_proxies"), seed) for records, seed in kept if records),
            "confirmed_seeds": SeedOutcomes.of(confirmed, wanted=0),
            "final_seeds": SeedOutcomes.of(final, wanted=plan.config.final.seeds),
        }
    )


def _over(
    found: Iterable[tuple[float | None, int]],
    statistics_of: Callable[[Sequence[float], Sequence[int]], SeedStatistics] = SeedStatistics.over,
) -> SeedStatistics | None:
    """Return the statistics of values and their seeds; None without a value."""
    known = [(value, seed) for value, seed in found if value is not None]
    return statistics_of(*zip(*known, strict=True)) if known else None


def _best(complete: Sequence[FrozenTrial], goal: Goal) -> BestTrial | None:
    """Return the complete trial that the ``goal`` prefers, the first of equal ones; None without any.

    Without constraints it is the one of highest value; trial 0 stands for other seeds of it.
    """
    default = [trial for trial in complete if trial.number == 0]
    if complete and goal.constraints:
        complete = [complete[goal.ranked([goal.measured(trial) for trial in complete])[0]]]
    best = max(complete, key=lambda trial: -math.inf if trial.value is None else trial.value, default=None)
    if best is None or best.value is None:
        return None
    first = next((trial for trial in default if trial.params == best.params), best)
    value = best.value if first.value is None else first.value
    return BestTrial(params=dict(best.params), value=value, number=first.number)


def incumbents(
    trials: Sequence[FrozenTrial], value_of: Callable[[Sequence[EpochRecord]], float | None]
) -> tuple[Incumbent, ...]:
    """Return each improvement of a search in order, from all trials of its study.

    A failed trial counts with its epochs and not with its values: it cannot be chosen. With every pruner the last
    improvement of a finished search is then the leading trial's. ``value_of`` returns a trial's value from its records
    so far; None while it has none.
    """
    ended = sorted(
        (record["end"], trial.number, count)
        for trial in trials
        for count, record in enumerate(epochs_of(trial), start=1)
    )
    records = {trial.number: epochs_of(trial) for trial in trials if trial.state != TrialState.FAIL}
    found: list[Incumbent] = []
    best = -math.inf
    for epochs, (_, number, count) in enumerate(ended, start=1):
        value = value_of(records[number][:count]) if number in records else None
        if value is not None and value > best:
            best = value
            found.append(Incumbent(epochs=epochs, value=value, trial=number))
    return tuple(found)


def _value(plan: Plan, records: Sequence[EpochRecord]) -> float | None:
    """Return a trial's value so far; with a cross-validation only after all folds: the first ones may be easier."""
    if plan.split.folds and len(records) < plan.steps:
        return None
    return running_value(records, plan.config.objective)


def _time_summary(search: Records, trials: Sequence[Trials]) -> TimeSummary:
    """Return the durations; the time between two sessions (a driver was killed and started again) is excluded."""
    of_search = [record for loss in trials for trial in loss[Stage.SEARCH] for record in epochs_of(trial)]
    of_all = [record for loss in trials for stage in loss.values() for trial in stage for record in epochs_of(trial)]
    moments = [record["end"] for record in of_all] + [opening.finished for opening in search.openings]
    sessions = search.sessions
    ends = [*sessions, math.inf][1:]  # not now: the clock may have been turned since, and verify derives the same
    wall = startup = search_wall = 0.0
    for start, end in zip(sessions, ends, strict=True):
        wall += max((moment - start for moment in moments if start <= moment < end), default=0.0)
        first = min((record["start"] for record in of_all if start <= record["start"] < end), default=start)
        startup += first - start
        searching = [record for record in of_search if start <= record["start"] < end]
        if searching:
            search_wall += max(record["end"] for record in searching) - min(record["start"] for record in searching)
    return TimeSummary(
        wall_s=round(wall, 3),
        startup_s=round(startup, 3),
        search_wall_s=round(search_wall, 3),
        trial_work_s=round(sum(record["end"] - record["start"] for record in of_search), 3),
        slots=search.slots,
    )


# Findings about the study of a loss.

NEAR = 0.05
"""The part of a range that is its end.

In searches of 32 trials by TPE with halving, with little and with much noise, the best trial is there in 4 and 5 % if
the parameter has no effect, in 10 and 20 % if its optimum is at 85 % of the range, in 51 and 30 % if it is at the very
end, and in 85 and 58 % if it is beyond (``python -m benchmarks statistics``).
"""


def edges(space: Space, best: Mapping[str, Value], allowed: Callable[[str, Value], bool]) -> Iterator[Finding]:
    """Yield a finding for each parameter that ``best`` has at an end of its range, unless that is its default.

    Ends of the parameter's domain are skipped: ``allowed`` returns True if a parameter may have a value.
    """
    for name, value in best.items():
        found = None if value == space[name].default else _end_near(space[name], value)
        if found and allowed(name, found[2]):
            upwards, end, _ = found
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
    if isinstance(entry, Float):
        end = entry.high if upwards else entry.low
        step = entry.step / (entry.high - entry.low) if entry.step else 0.01
        beyond = entry.value_at(1 + step if upwards else -step)
    else:
        end, before = (numbers[-1], numbers[-2]) if upwards else (numbers[0], numbers[1])
        beyond = end + (end - before)
    if isinstance(end, int):
        beyond = end + (1 if upwards else -1)
    return upwards, end, beyond


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

    def allowed(name: str, value: Value) -> bool:
        configuration = Params({name: value})
        if loss is None:  # only its author knows
            return True
        try:
            LOSSES[loss](num_classes=2, embedding_dim=2, **configuration.loss)
            replace(training, **configuration.training)
        except ValueError:
            return False
        return True

    found = nothing or extreme_epochs(complete, objective, training.epochs, high_rates)
    return (*edges(space, best or {}, allowed), *found)
