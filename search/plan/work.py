"""The epochs and seconds that are left to train."""

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
"""So many epochs of a loss say how long the next one takes."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """One study's trials: those planned, those so far, and how many epochs a whole training has."""

    study: str
    loss: str
    stage: Stage
    budget: Budget
    tally: Tally
    epochs_each: float

    @property
    def typical(self) -> float:
        """Epochs of a trial, if those to come are pruned as early as those that ended."""
        tally = self.tally
        return (tally.epochs - tally.epochs_running) / tally.ended if tally.ended else self.epochs_each

    def left(self) -> float:
        """Epochs still to train."""
        tally = self.tally
        going = max(0.0, tally.running * self.typical - tally.epochs_running)
        to_start = self.budget.to_start(tally) * self.typical
        if self.budget.epochs is None:
            return to_start + going
        return min(to_start, max(0.0, self.budget.epochs - tally.epochs - going)) + going


def planned_work(search: OpenedSearch, stages: Sequence[Stage]) -> Iterator[Work]:
    """The studies of ``stages``, with as many trials as the search file asks for and those that are stored.

    The choice may take fewer finalists than it may have, and a default that is best is trained once for the test: the
    stage itself knows when it begins.
    """
    config = search.config
    whole = config.training.epochs * max(1, len(search.plan.split.folds))
    for loss in config.loss_names:
        planned = planned_budgets(search.plan, loss)
        for stage in stages if Stage.SEARCH not in stages else (*stages, Stage.AUDIT):
            yield Work(
                study=study_name(search.name, loss, stage),
                loss=loss,
                stage=stage,
                budget=planned[stage],
                tally=Tally.of(search.trials(loss, stage)),
                epochs_each=config.training.epochs if stage is Stage.TEST else whole,
            )


def planned_budgets(plan: Plan, loss: str) -> dict[Stage, Budget]:
    """How many trials each stage has at most."""
    config, folds = plan.config, len(plan.split.folds)
    final = config.final.seeds * (folds if folds and config.final.train_on == "train" else 1)
    return {
        Stage.NOISE: Budget(trials=(config.noise.seeds + config.noise.splits) * (loss == config.noise_loss)),
        Stage.SEARCH: plan.budget(loss),
        Stage.AUDIT: Budget(trials=config.search.audit),
        Stage.SELECT: Budget(trials=(config.selection.finalists + 1) * config.selection.seeds),
        Stage.TEST: Budget(trials=2 * final),
    }


def confirmations_planned(trials: Sequence[FrozenTrial], seeds: int) -> int:
    """How many trials a confirmation will have, by those that are enqueued.

    At first it has one for each finalist, and later all that are left of ``seeds`` each.
    """
    finalists = len({trial.user_attrs["source_trial"] for trial in trials})
    return len(trials) if len(trials) > finalists else finalists * seeds


class Pace:
    """How long an epoch of each loss takes in each search, in seconds."""

    def __init__(self, searches: Sequence[OpenedSearch]) -> None:
        self._seconds: dict[tuple[str, str], deque[float]] = {}
        for search in searches:
            for loss in search.config.loss_names:
                for trial in (trial for stage in Stage for trial in search.trials(loss, stage)[-RECENT:]):
                    for record in epochs_of(trial)[-RECENT:]:
                        self.add(search.name, loss, record["end"] - record["start"])

    def add(self, search: str, loss: str, seconds: float) -> None:
        """An epoch of ``loss`` in ``search`` took so long."""
        self._seconds.setdefault((search, loss), deque(maxlen=RECENT)).append(seconds)

    def means(self) -> Mapping[tuple[str, str], float]:
        """The mean of each search and loss that was trained."""
        return {key: statistics.fmean(tuple(seconds)) for key, seconds in tuple(self._seconds.items())}


def seconds_left(works: Sequence[Work], pace: Mapping[tuple[str, str], float], concurrent: int) -> float | None:
    """How long ``works`` take with so many trials at once; None before any epoch was measured.

    A stage begins when the one before has ended, and takes at least as long as its longest trial. A loss that was not
    trained yet is taken for a typical one.
    """
    if not pace:
        return None
    typical = statistics.fmean(pace.values())
    total = 0.0
    for stage in Stage:
        epochs = [
            (work.left(), work.typical, pace.get((search_of(work.study), work.loss), typical))
            for work in works
            if work.stage is stage
        ]
        together = sum(left * seconds for left, _, seconds in epochs) / concurrent
        total += max([together, *(min(left, longest) * seconds for left, longest, seconds in epochs)])
    return total
