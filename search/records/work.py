"""The planned trials: their epochs and seconds of training, and how many run at once."""

import statistics
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from search.config.search_config import SearchConfig
from search.records.plan import Plan
from search.records.records import Records
from search.stages import Stage, search_of, study_name
from search.study import Budget
from search.trials import Tally, epochs_of
from trainables.common.process import allotted_cpus

RECENT = 50
"""The number of a loss's last epochs from which the duration of the next one is predicted."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One study's planned trials, its trials so far, and the epochs of a whole training."""

    study: str
    loss: str
    stage: Stage
    budget: Budget
    tally: Tally
    epochs_each: float

    @property
    def typical(self) -> float:
        """Expected epochs of a trial, from the finished ones, pruned ones included."""
        tally = self.tally
        return (tally.epochs - tally.epochs_running) / tally.ended if tally.ended else self.epochs_each

    def left(self, seconds: float | None = None) -> float:
        """Return the remaining epochs; ``seconds`` is the time of an epoch, for a budget in hours."""
        tally = self.tally
        going = max(0.0, tally.running * self.typical - tally.epochs_running)
        to_start = 0 if tally.stopped else max(0, self.budget.most - tally.started) * self.typical
        return min(to_start, max(0.0, self.budget.epochs_left(tally, seconds) - going)) + going


def planned_work(
    plan: Plan, stages: Sequence[Stage], trials: Callable[[str, Stage], Sequence[FrozenTrial]] = lambda loss, stage: ()
) -> Iterator[Work]:
    """Yield the studies of ``stages``, with their planned trials and those that ``trials`` returns.

    These are upper bounds: there may be fewer finalists, and only one configuration to test if the default is best.
    """
    config, folds = plan.config, len(plan.split.folds)
    final = config.final.seeds * (folds if folds and config.final.train_on == "train" else 1)
    confirmed = (config.selection.finalists + 1) * plan.confirmation_seeds * (2 if plan.on_halves else 1)
    epochs_each = dict.fromkeys(Stage, float(plan.steps)) | {Stage.TEST: float(config.training.epochs)}
    if plan.on_halves:  # an epoch of half of the classes takes half of the time
        epochs_each[Stage.SELECT] = config.training.epochs / 2
    later = {Stage.SELECT: Budget(trials=confirmed), Stage.TEST: Budget(trials=2 * final)}
    for loss in config.loss_names:
        for stage, budget in {Stage.SEARCH: plan.budget(loss), **later}.items():
            if stage in stages:
                yield Work(
                    study=study_name(config.name, loss, stage),
                    loss=loss,
                    stage=stage,
                    budget=budget,
                    tally=Tally.of(trials(loss, stage)),
                    epochs_each=epochs_each[stage],
                )


# The trials at once, and their pace.


def slots_here(config: SearchConfig) -> int:
    """Return the number of trials that run at once on this machine; counts one GPU, since counting them needs torch."""
    cpus = allotted_cpus() / config.resources.cpus_per_trial
    slots = 1 if config.resources.gpus_per_trial else max(1, int(cpus))
    return min(slots, config.search.max_concurrent or slots)


Pace = Mapping[tuple[str, str], Sequence[float]]
"""Seconds of the last epochs by search and loss."""


def pace_of(searches: Sequence[Records]) -> dict[tuple[str, str], deque[float]]:
    """Return the seconds of the last :data:`RECENT` epochs of each loss in each search."""
    pace: dict[tuple[str, str], deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
    for search in searches:
        for loss in search.config.loss_names:
            for trial in (trial for stage in Stage for trial in search.trials(loss, stage)[-RECENT:]):
                pace[search.name, loss].extend(record["end"] - record["start"] for record in epochs_of(trial)[-RECENT:])
    return pace


def seconds_left(works: Sequence[Work], pace: Pace, concurrent: int) -> float | None:
    """Estimate the duration of ``works`` with ``concurrent`` trials at once; None before any epoch was measured.

    Each stage takes at least as long as its longest trial. A loss without measured epochs gets the others' mean.
    """
    means = {key: statistics.fmean(tuple(seconds)) for key, seconds in tuple(pace.items()) if seconds}  # it may grow
    if not means:
        return None
    typical = statistics.fmean(means.values())
    total = 0.0
    for stage in Stage:
        epochs = [
            (work.left(seconds), work.typical, seconds)
            for work in works
            if work.stage is stage
            for seconds in [means.get((search_of(work.study), work.loss), typical)]
        ]
        together = sum(left * seconds for left, _, seconds in epochs) / concurrent
        total += max([together, *(min(left, longest) * seconds for left, longest, seconds in epochs)])
    return total
