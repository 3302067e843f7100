"""The remaining epochs and seconds of training."""

import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from search.plan.plan import Plan
from search.plan.search import OpenedSearch
from search.stages import Stage, search_of, study_name
from search.study import Budget, Tally
from search.trials import epochs_of

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
        to_start = self.budget.to_start(tally) * self.typical
        return min(to_start, max(0.0, self.budget.epochs_left(tally, seconds) - going)) + going


def planned_work(search: OpenedSearch, stages: Sequence[Stage]) -> Iterator[Work]:
    """Yield the studies of ``stages``, with their planned and their stored trials.

    These are upper bounds: there may be fewer finalists, and only one configuration to test if the default is best.
    """
    config = search.config
    whole = config.training.epochs * max(1, len(search.plan.split.folds))
    for loss in config.loss_names:
        planned = planned_budgets(search.plan, loss)
        for stage in stages:
            yield Work(
                study=study_name(search.name, loss, stage),
                loss=loss,
                stage=stage,
                budget=planned[stage],
                tally=Tally.of(search.trials(loss, stage)),
                epochs_each=config.training.epochs if stage is Stage.TEST else whole,
            )


def planned_budgets(plan: Plan, loss: str) -> dict[Stage, Budget]:
    """Return the maximum number of trials of each stage."""
    config, folds = plan.config, len(plan.split.folds)
    final = config.final.seeds * (folds if folds and config.final.train_on == "train" else 1)
    return {
        Stage.NOISE: Budget(trials=(config.noise.seeds + config.noise.splits) * (loss == config.noise_loss)),
        Stage.SEARCH: plan.budget(loss),
        Stage.SELECT: Budget(trials=(config.selection.finalists + 1) * config.selection.seeds),
        Stage.TEST: Budget(trials=2 * final),
    }


def confirmations_planned(trials: Sequence[FrozenTrial], seeds: int) -> int:
    """Return the number of trials of a confirmation, from those enqueued so far.

    At first there is one for each finalist; later all of their ``seeds`` are enqueued.
    """
    finalists = len({trial.user_attrs["source_trial"] for trial in trials})
    return len(trials) if len(trials) > finalists else finalists * seeds


class Pace:
    """Seconds per epoch of each loss in each search."""

    def __init__(self, searches: Sequence[OpenedSearch]) -> None:
        self._seconds: dict[tuple[str, str], deque[float]] = {}
        for search in searches:
            for loss in search.config.loss_names:
                for trial in (trial for stage in Stage for trial in search.trials(loss, stage)[-RECENT:]):
                    for record in epochs_of(trial)[-RECENT:]:
                        self.add(search.name, loss, record["end"] - record["start"])

    def add(self, search: str, loss: str, seconds: float) -> None:
        """Add the duration of an epoch of ``loss`` in ``search``."""
        self._seconds.setdefault((search, loss), deque(maxlen=RECENT)).append(seconds)

    def means(self) -> Mapping[tuple[str, str], float]:
        """Return the mean duration for each search and loss."""
        return {key: statistics.fmean(tuple(seconds)) for key, seconds in tuple(self._seconds.items())}


def seconds_left(works: Sequence[Work], pace: Mapping[tuple[str, str], float], concurrent: int) -> float | None:
    """Estimate the duration of ``works`` with ``concurrent`` trials at once; None before any epoch was measured.

    Stages run one after the other, and each takes at least as long as its longest trial. A loss without measured
    epochs gets the mean of the others.
    """
    if not pace:
        return None
    typical = statistics.fmean(pace.values())
    total = 0.0
    for stage in Stage:
        epochs = [
            (work.left(seconds), work.typical, seconds)
            for work in works
            if work.stage is stage
            for seconds in [pace.get((search_of(work.study), work.loss), typical)]
        ]
        together = sum(left * seconds for left, _, seconds in epochs) / concurrent
        total += max([together, *(min(left, longest) * seconds for left, longest, seconds in epochs)])
    return total
