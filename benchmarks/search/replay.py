"""Searches on a table in simulated time, by the product's own queue, studies, samplers, pruners and selection.

An epoch takes one unit of time. A free slot takes the queue's next trial at once; of events at the same time, the trial
that was started first comes first. Nothing is trained: a trial reports a curve drawn from the table.
"""

import copy
import heapq
import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from benchmarks.search.table import Table
from search.config.tables import PRUNERS
from search.selection import choose, confirmations, finalists, rounds
from search.stages import Rule, Stage, study_name
from search.study import Budget, LossStudy, QueuedStage, QueuedStudy, RunningTrial, TrialQueue
from search.study.sampler import Availability, Sampler
from search.trials import ByEpoch, epochs_trained
from spaces.space import Value
from trainables.spec import derived_seed

Seen = Callable[[list[FrozenTrial]], list[FrozenTrial]]
"""A function from the trials of a study to those that a sampler sees."""

OBJECTIVE = "map_at_r"
DIVERGED = {"cause": "DIVERGED", "reason": "The training loss became nan."}


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to search: a sampler, a pruner, and the confirmation; the values are the search file's defaults.

    ``probe`` is another way to spend the epochs (arXiv 2307.15422): all trials train one epoch, and the best ``probe``
    of them and the default then train to their end. ``restricted`` maximises the acquisition function of a Gaussian
    process over the rows of the table, see :class:`OnRows`. ``seen`` changes the trials that the model sees.
    """

    sampler: type[Sampler]
    pruner: str = "asha"
    finalists: int = 3
    seeds: int = 2
    splits: int = 1
    rule: Rule = "halving"
    probe: int = 0
    restricted: bool = True
    seen: Seen | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The end of a search: its choice, the best configuration that it visited, its epochs and its length.

    Attributes:
        chosen: the configuration that it chose.
        visited: the configuration, of those that it tried, that is worth the most.
        epochs: the epochs of all trainings, confirmations included.
        confirming: those of the confirmations.
        time: when the last training ended, in epochs.
    """

    chosen: int
    visited: int
    epochs: int
    confirming: int
    time: float


class Memory(InMemoryStorage):
    """A storage in memory with the transactions that a :class:`LossStudy` asks for."""

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()


@dataclass(frozen=True, kw_only=True)
class OnRows(Sampler):
    """The sampler ``of``, whose proposals are replaced by the nearest rows of ``table``.

    If ``restricted``, a Gaussian process takes the row with the highest acquisition function instead. The row nearest
    to the highest point of the whole space is often one that was trained already, and to find that point takes half a
    second.
    """

    table: Table
    of: Sampler
    restricted: bool = True
    seen: Seen | None = None

    summary = "a sampler on the rows of a table"

    @property
    def models_complete(self) -> bool:  # type: ignore[override]
        return self.of.models_complete

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        sampler = self.of.build(number, trials)
        if self.restricted and isinstance(sampler, GPSampler):
            sampler._optimize_acqf = self._best_row  # type: ignore[method-assign]
        return _Nearest(self.table, sampler, self.seen)

    def _best_row(self, acquisition: Any, best_params: Any) -> NDArray[np.float64]:
        rows: list[Any] = list(self.table.configurations)
        rows_CP: NDArray[np.float64] = acquisition.search_space.get_normalized_params(rows, rows)
        return rows_CP[acquisition.eval_acqf_no_grad(rows_CP).argmax()]

    def availability(self, trials: Sequence[FrozenTrial]) -> Availability:
        return self.of.availability(trials)


class _Nearest(BaseSampler):
    """An Optuna sampler that proposes the row nearest to the proposal of the sampler ``of``."""

    def __init__(self, table: Table, of: BaseSampler, seen: Seen | None) -> None:
        self._table, self._of, self._seen = table, of, seen

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        study = seen_study(study, self._seen)
        return self._of.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        study = seen_study(study, self._seen)
        proposed = self._of.sample_relative(study, trial, search_space)
        params: dict[str, Value] = {}
        for name, parameter in self._table.space.parameters.items():
            if not parameter.exists(params):
                continue
            if parameter.distribution.single():  # pinned: samplers are not asked for it
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


def seen_study(study: Study, seen: Seen | None) -> Study:
    """Return a copy of ``study`` whose samplers see the trials that ``seen`` returns."""
    if seen is None:
        return study
    changed, get_trials = copy.copy(study), study._get_trials

    def trials(
        deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        return [trial for trial in seen(get_trials(deepcopy=False)) if states is None or trial.state in states]

    changed._get_trials = trials  # type: ignore[method-assign]
    return changed


class Replay:
    """One search of ``trials`` trials on ``table``, with the number ``run``."""

    def __init__(self, table: Table, way: Way, *, trials: int, slots: int, run: int) -> None:
        self._table, self._way, self._trials, self._slots, self._run = table, way, trials, slots, run
        self._division = run % table.divisions
        self._storage = Memory()
        self._studies: list[LossStudy] = []

    def outcome(self) -> Outcome:
        """Run the search and its confirmation."""
        time = self._train(TrialQueue(self._stages()))
        *searched, confirmed = (study.trials() for study in self._studies)
        candidates = [trial.number for trial in finalists(searched[-1], self._way.finalists)]
        chosen = choose(self._way.rule, confirmations(searched[-1], confirmed, candidates, OBJECTIVE))
        number = 0 if chosen is None else self._table.number(chosen[0].params)
        visited = {self._table.number(trial.params) for trials in searched for trial in trials}
        # A probe's epoch is the first one of the training that follows it.
        again = len(searched[-1]) if self._way.probe else 0
        confirming = epochs_trained(confirmed)
        return Outcome(
            chosen=number,
            visited=max(visited, key=lambda configuration: self._table.worth[configuration]),
            epochs=sum(map(epochs_trained, searched)) + confirming - again,
            confirming=confirming,
            time=time,
        )

    # The stages, as those of the driver (search.driver.stages).

    def _stages(self) -> Iterator[QueuedStage]:
        if self._way.probe:
            probed = self._search(epochs=1)
            yield probed[0]
            first, *others = probed[1].trials()
            best = sorted(others, key=lambda trial: -(trial.value if trial.value is not None else -np.inf))
            searched = self._study(Stage.SEARCH)
            searched.enqueue(
                [(trial.params, {"seed": trial.user_attrs["seed"]}) for trial in (first, *best[: self._way.probe])]
            )
            yield self._queued(Stage.SEARCH, searched, Budget(trials=len(searched.trials())))
        else:
            stage, searched = self._search(epochs=self._table.epochs)
            yield stage
        trials = searched.trials()
        numbers = [trial.number for trial in finalists(trials, self._way.finalists)]
        confirmed = self._study(Stage.SELECT)
        yield self._confirming(confirmed, trials, dict.fromkeys(numbers, 1))
        found = confirmations(trials, confirmed.trials(), numbers, OBJECTIVE)
        yield self._confirming(
            confirmed, trials, rounds(self._way.rule, list(found.values()), self._way.seeds) if found else {}
        )

    def _search(self, epochs: int) -> tuple[QueuedStage, LossStudy]:
        """Return the stage of proposed trials after the default, and its study."""
        of = self._way.sampler(loss="table", space=self._table.space, seed=self._run, trials=self._trials)
        sampler = OnRows(
            **{field.name: getattr(of, field.name) for field in fields(of)},
            table=self._table,
            of=of,
            restricted=self._way.restricted,
            seen=self._way.seen,
        )
        study = self._study(Stage.SEARCH if epochs > 1 else Stage.NOISE, sampler)
        study.enqueue([(self._table.configurations[0], {"default": True})])
        return self._queued(study=study, stage=Stage.SEARCH, budget=Budget(trials=self._trials, sampler=sampler),
                            epochs=epochs), study  # fmt: skip

    def _confirming(self, study: LossStudy, trials: Sequence[FrozenTrial], seeds: Mapping[int, int]) -> QueuedStage:
        study.enqueue(
            [
                (
                    trials[number].params,
                    {"source_trial": number, "split": index % self._way.splits, "seed": self._seed("confirm", index)},
                )
                for number, count in seeds.items()
                for index in range(count)
            ]
        )
        return self._queued(Stage.SELECT, study, Budget(trials=len(study.trials())))

    def _study(self, stage: Stage, sampler: Sampler | None = None) -> LossStudy:
        pruner = PRUNERS[self._way.pruner if sampler else "none"](steps=self._table.epochs)
        study = LossStudy(
            self._storage,  # type: ignore[arg-type]
            study_name(self._table.name, "table", stage),
            space=self._table.space,
            trial_value=ByEpoch(objective=OBJECTIVE),
            pruner=pruner,
            sampler=sampler,
            attributes={},
        )
        self._studies.append(study)
        return study

    def _queued(self, stage: Stage, study: LossStudy, budget: Budget, epochs: int | None = None) -> QueuedStage:
        spec: Any = SimpleNamespace(epochs=epochs or self._table.epochs)
        queued = QueuedStudy(
            loss="table",
            study=study,
            budget=budget,
            prune=stage is Stage.SEARCH,
            seed=lambda number: self._seed(study.name, number),
            spec=lambda trial: spec,
        )
        return QueuedStage(stage=stage, studies=[queued])

    def _seed(self, *parts: str | int) -> int:
        return derived_seed(self._run, *parts)

    # The engine.

    def _train(self, queue: TrialQueue) -> float:
        """Train all that the queue offers; return the time of the last event."""
        now, order = 0.0, itertools.count()
        events: list[tuple[float, int, RunningTrial, list[float]]] = []
        while True:
            while len(events) < self._slots and (running := queue.next_trial()):
                heapq.heappush(events, (now + 1, next(order), running, list(self._curve(running))))
            if not events:
                return now
            now, place, running, values = heapq.heappop(events)
            if self._report(queue, running, values):
                heapq.heappush(events, (now + 1, place, running, values[1:]))

    def _curve(self, running: RunningTrial) -> Sequence[float]:
        trial = running.stored
        row = self._table.number(trial.params)
        # Of the row and the seed alone, so that a probe and the training that follows it agree.
        generator = np.random.default_rng([self._run, row, trial.user_attrs["seed"]])
        division = (self._division + trial.user_attrs.get("split", 0)) % self._table.divisions
        return self._table.curve(row, division, generator)[: running.spec.epochs].tolist()

    def _report(self, queue: TrialQueue, running: RunningTrial, values: list[float]) -> bool:
        """Report the next epoch; return True if the trial goes on."""
        if not values:
            return queue.on_trial_result(running, {"failure": DIVERGED})
        epoch = running.new_epochs + 1
        record = {
            "epoch": epoch, "batches": 1, "metrics": {OBJECTIVE: values[0]},
            "start": 0.0, "end": 0.0, "checkpoint": None,
        }  # fmt: skip
        finished = epoch == running.spec.epochs
        return queue.on_trial_result(running, {"records": [record], "finished": finished})


def problems(table: Table, way: Way) -> list[str]:
    """Return why ``way`` cannot search the space of ``table``."""
    return way.sampler(loss="table", space=table.space, seed=0, trials=16).problems()
