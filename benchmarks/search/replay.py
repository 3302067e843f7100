"""Searches on a table in simulated time, by the product's own queue, studies, samplers, pruners and selection.

An epoch takes one unit of time. A free slot takes the queue's next trial at once; of events at the same time, the trial
that was started first comes first. Nothing is trained: a trial reports a curve drawn from the table, and what the
confirmation measures is in the table.
"""

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from benchmarks.search.table import Table
from benchmarks.search.ways import Rule, Way
from search.difference import Basis
from search.records import Confirmation, choose, finalists
from search.stages import Stage, study_name
from search.study import Budget, LossStudy, QueuedStage, QueuedStudy, RunningTrial, StudyStorage, TrialQueue
from search.study.sampler import Availability, Sampler
from search.tables import PRUNERS
from search.trials import record_keys, values_of
from spaces.space import Value
from trainables.training.spec import Epochs, Failed, derived_seed

OBJECTIVE = "map_at_r"
DIVERGED = Failed(cause="DIVERGED", reason="The training loss became nan.")


# The choice.


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen configuration, and the epochs of the confirmation; training on two halves is one whole training."""

    chosen: int
    epochs: int


def chosen(table: Table, trials: Sequence[FrozenTrial], rule: Rule, half: int) -> Choice:
    """Return the choice of ``rule`` after the ``trials`` of a search that the ``half`` (0 or 1) validated."""
    candidates = finalists(trials, rule.finalists or len(trials))
    if not candidates:
        return Choice(chosen=0, epochs=0)
    if rule.on in ("search", "predicted", "reshuffled"):
        return Choice(chosen=_best(table, trials, candidates, rule), epochs=0)
    confirmed = {trial.number: _confirmed(table, trial, trials, rule, half) for trial in candidates}
    basis = Basis(objective=OBJECTIVE, validation="", confirmation="", better_by=rule.better_by)
    choice = choose(confirmed, table.configurations[0], basis)
    trainings = len(candidates) * (table.validation.shape[1] if rule.on == "split" else 1)
    return Choice(
        chosen=0 if choice is None else table.number(choice[0].params),
        epochs=table.epochs * trainings,
    )


def _best(table: Table, trials: Sequence[FrozenTrial], candidates: Sequence[FrozenTrial], rule: Rule) -> int:
    """Return the choice without a confirmation; trials that were pruned have their last value."""
    if rule.on == "search":
        return table.number(candidates[0].params)
    last = {table.number(trial.params): trial.intermediate_values for trial in trials if trial.intermediate_values}
    if rule.on == "predicted":
        return table.best_predicted({row: values[max(values)] for row, values in last.items()})
    rows = [table.number(trial.params) for trial in candidates]
    generator = np.random.default_rng(rows)
    validating, classes = table.split.shape[1], table.halves.shape[1]
    of_rows = [np.nan_to_num(table.halves[row])[generator.permutation(classes)[:validating]].mean() for row in rows]
    return rows[int(np.argmax(of_rows))]


def on_half(table: Table, half: int) -> slice:
    """Return the place of the classes of a half."""
    return slice(table.first) if half == 0 else slice(table.first, None)


def _confirmed(table: Table, trial: FrozenTrial, trials: Sequence[FrozenTrial], rule: Rule, half: int) -> Confirmation:
    number = table.number(trial.params)
    values_K = (table.split if rule.on == "split" else table.halves)[number]
    values_K = values_K[on_half(table, half)] if rule.on == "half" else values_K
    failed = bool(np.isnan(values_K).any())
    ignored = not rule.agreed and number == 0  # a default without a value in the search is below all others
    return Confirmation(
        number=trial.number,
        params=table.configurations[number],
        searched=() if ignored else values_of([other for other in trials if other.params == trial.params]),
        values=() if failed else (float(values_K.mean()),),
        classes={} if failed else {str(place): float(value) for place, value in enumerate(values_K)},
        best_epochs=(),
        failed=int(failed),
    )


# The search.


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a search.

    Attributes:
        tried: the configurations that it tried.
        choices: the choice of each rule, in their order.
        epochs: the epochs of the search; two on half of the classes are one.
        time: when its last training ended, in epochs.
    """

    tried: tuple[int, ...]
    choices: tuple[Choice, ...]
    epochs: float
    time: float


@dataclass(frozen=True, kw_only=True)
class OnRows(Sampler):
    """The sampler ``of``, whose proposals are replaced by the nearest rows of ``table``."""

    table: Table
    of: Sampler

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        return _Nearest(self.table, self.of.build(number, trials))

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        return self.of.availability(trials)


class _Nearest(BaseSampler):
    """An Optuna sampler that proposes the row nearest to the proposal of the sampler ``of``."""

    def __init__(self, table: Table, of: BaseSampler) -> None:
        self._table, self._of = table, of

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._of.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        proposed = self._of.sample_relative(study, trial, search_space)
        params: dict[str, Value] = {}
        for name, parameter in self._table.space.parameters.items():
            if not parameter.exists(params):
                continue
            if parameter.is_single:  # pinned: samplers are not asked for it
                params[name] = parameter.default
                continue
            given = name in proposed
            params[name] = (
                proposed[name] if given else self._of.sample_independent(study, trial, name, parameter.distribution)
            )
        self._row = self._table.configurations[self._table.nearest(params)]
        return {name: self._row[name] for name in search_space if name in self._row}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._row[param_name]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._of.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._of.after_trial(study, trial, state, values)


class Replay:
    """One search of ``trials`` trials on ``table``, with the number ``run``."""

    def __init__(self, table: Table, way: Way, *, trials: int, slots: int, run: int) -> None:
        self._table, self._slots, self._run, self._on = table, slots, run, way.on
        of = way.sampler(loss="table", space=table.space, seed=run, trials=trials)
        sampler = OnRows(**{field.name: getattr(of, field.name) for field in fields(of)}, table=table, of=of)
        epochs = table.epochs * (2 if way.on == "folds" else 1)
        self._study = LossStudy(
            StudyStorage(),
            study_name(table.name, "table", Stage.SEARCH),
            space=table.space,
            objective=OBJECTIVE,
            pruner=PRUNERS[way.pruner](steps=epochs),
            sampler=sampler,
            attributes={},
        )
        self._study.enqueue([(table.configurations[0], {"default": True})])
        spec: Any = SimpleNamespace(epochs=epochs, trainable=None)
        queued = QueuedStudy(
            loss="table",
            study=self._study,
            budget=Budget(trials=trials, sampler=sampler),
            prune=True,
            seed=lambda number: derived_seed(run, number),
            spec=lambda trial: spec,
        )
        self._queue = TrialQueue(iter([QueuedStage(stage=Stage.SEARCH, studies=[queued])]))

    def outcome(self, rules: Iterable[Rule]) -> Outcome:
        """Run the search and choose by each of the ``rules``."""
        time = self._train()
        trials = self._study.trials()
        return Outcome(
            tried=tuple(sorted({self._table.number(trial.params) for trial in trials})),
            choices=tuple(chosen(self._table, trials, rule, self._run % 2) for rule in rules),
            epochs=sum(len(record_keys(trial)) for trial in trials) * (1 if self._on == "split" else 0.5)
            + self._table.epochs * self._extra,
            time=time,
        )

    def _train(self) -> float:
        """Train all that the queue offers; return the time of the last event."""
        now, order = 0.0, itertools.count()
        events: list[tuple[float, int, RunningTrial, list[float]]] = []
        while True:
            while len(events) < self._slots and (running := self._queue.next_trial()):
                heapq.heappush(events, (now + 1, next(order), running, self._curve(running.stored)))
            if not events:
                return now
            now, place, running, values = heapq.heappop(events)
            if self._report(running, values):
                heapq.heappush(events, (now + 1, place, running, values[1:]))

    @property
    def _extra(self) -> float:
        """The trainings beside the trials: of rotating halves, the default on the other half."""
        return 0.5 if self._on == "rotating" else 0.0

    def _curve(self, trial: FrozenTrial) -> list[float]:
        table, row = self._table, self._table.number(trial.params)
        generator = np.random.default_rng([self._run, row, trial.user_attrs["seed"]])
        if self._on == "split":
            return list(table.curve(row, generator))
        half = (self._run + (trial.number if self._on == "rotating" else 0)) % 2
        curve = table.half_curve(row, half, generator)
        if self._on == "folds" and len(curve) == table.epochs:
            curve = np.concatenate([curve, table.half_curve(row, 1 - half, generator)])
        if self._on == "rotating":
            curve = curve - table.halved[0, half].max()
        return list(curve)

    def _report(self, running: RunningTrial, values: list[float]) -> bool:
        """Report the next epoch; return True if the trial goes on."""
        if not values:
            return self._queue.on_trial_result(running, DIVERGED)
        epoch = running.new_epochs + 1
        fold, of_fold = divmod(epoch - 1, self._table.epochs)
        record = {
            "epoch": of_fold + 1, "batches": 1, "metrics": {OBJECTIVE: float(values[0])},
            "start": 0.0, "end": 0.0, "checkpoint": None, **({"fold": fold + 1} if self._on == "folds" else {}),
        }  # fmt: skip
        finished = epoch == running.spec.epochs
        return self._queue.on_trial_result(running, Epochs([record], finished=finished))
