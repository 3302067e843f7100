"""Optuna's storage on the journal of a search, and the study of one loss in one stage, as sampler and driver see it.

In addition to Optuna's state, parameters and intermediate values, a trial has these user attributes: ``seed``,
``epoch:<n>`` (one record per epoch; in a cross-validation ``epoch:<fold>:<n>``), ``outcome`` (why it ended as it did),
``failure`` (cause and reason) if it failed, and ``replicate_of`` (the first trial of the study with equal parameters)
if it trains another seed. Studies of later stages also store ``source_trial``, the trial of the search that is trained
again. Pinned parameters are parameters too, with a distribution of a single value.
"""

import copy
import gc
import json
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna import Study
from optuna.pruners import NopPruner
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from search.goal import Goal
from search.study.journal import JournalReader, JournalWriter, Log
from search.study.pruners import Pruner
from search.study.sampler import Sampler, failed_by_params
from search.trials import Tally, changed, params_of, record_key, record_keys, running_value
from spaces.search_space import SearchSpace
from spaces.space import Params, Value
from trainables.common.errors import Failure
from trainables.common.files import reading
from trainables.metrics import score_text
from trainables.training.spec import EpochRecord

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Journal(BaseJournalBackend):
    """Operations in memory: first ``logs``, then those that ``read`` returns; ``append`` gets new ones as JSON."""

    def __init__(
        self,
        logs: Sequence[Log] = (),
        read: Callable[[], list[Log]] = list,
        append: Callable[[Sequence[str]], None] = lambda lines: None,
    ) -> None:
        self._logs, self._read, self._append = list(logs), read, append
        self._first = 0
        self._waiting: list[str] | None = None
        self._failed = False

    def read_logs(self, log_number_from: int) -> list[Log]:
        """Return the operations from this number on; those before it will not be asked for again."""
        self._logs += self._read()
        del self._logs[: log_number_from - self._first]
        self._first = log_number_from
        return list(self._logs)

    def append_logs(self, logs: list[Log]) -> None:
        """Add operations, with their values as they would be read from a file."""
        lines = [json.dumps(log, separators=(",", ":")) for log in logs]
        self._logs += map(json.loads, lines)
        with self.transaction() as waiting:
            waiting += lines

    @contextmanager
    def transaction(self) -> Iterator[list[str]]:
        """Pass all operations of this context to ``append`` at once when it ends."""
        if self._waiting is not None:
            yield self._waiting
            return
        self._waiting = lines = list[str]()
        try:
            yield lines
        except BaseException:
            self._failed = True
            raise
        finally:
            self._waiting = None
        if lines:
            if self._failed:
                raise Failure("An earlier change of the studies failed; run the same command again to resume.")
            self._failed = True
            self._append(lines)
            self._failed = False


class StudyStorage(JournalStorage):
    """The studies in ``journal``, by default none yet and in memory alone; :meth:`close` closes its file."""

    def __init__(self, journal: Journal | None = None, close: Callable[[], object] = lambda: None) -> None:
        journal = journal or Journal()
        super().__init__(journal)
        self._journal, self.close = journal, close

    def transaction(self) -> AbstractContextManager[object]:
        """Write all changes made in this context when it ends, atomically; nested transactions are written together.

        Act on the changes after the context only. An error leaves the memory ahead of the file, as if the driver had
        died: further changes are refused, and the search is resumed from the file.
        """
        return self._journal.transaction()

    def trials_of(self, name: str) -> list[FrozenTrial]:
        """Return the trials of the study ``name``; empty if it does not exist."""
        study = self._study_id(name)
        return [] if study is None else self.get_all_trials(study, deepcopy=False)

    def attributes_of(self, name: str) -> dict[str, Any]:
        """Return the user attributes of the study ``name``; empty if it does not exist."""
        study = self._study_id(name)
        return {} if study is None else dict(self.get_study_user_attrs(study))

    def _study_id(self, name: str) -> int | None:
        try:
            return self.get_study_id_from_name(name)
        except KeyError:
            return None


@contextmanager
def _replaying(path: Path) -> Iterator[None]:
    """Name ``path`` in errors, and pause the garbage collector: it takes a quarter of the time of a long journal."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        with reading(path):
            yield
    finally:
        if enabled:
            gc.enable()


def open_studies(path: Path) -> StudyStorage:
    """Open the journal at ``path`` for its driver, creating it if needed; raise as :meth:`JournalWriter.begin`."""
    writer = JournalWriter(path)
    with _replaying(path):
        return StudyStorage(Journal(writer.begin(), append=writer.append), writer.close)


def read_studies(path: Path) -> StudyStorage:
    """Return the studies in the journal at ``path``, which another process may be writing."""
    with _replaying(path):
        return StudyStorage(Journal(read=JournalReader(path).read))


def copy_studies(path: Path, without: Collection[str] = ()) -> StudyStorage:
    """Return a copy in memory of the studies in the journal at ``path``; those named in ``without`` do not exist."""
    with _replaying(path):
        logs = JournalReader(path).read()
        for log in logs:
            if (name := log.get("study_name")) in without:  # its trials keep their places in the journal
                log["study_name"] = f"hidden/{name}"
        return StudyStorage(Journal(logs))


# The study of one loss.


def pruning_sentence(objective: str, step: int, value: float, reason: str) -> str:
    """Return the outcome of a trial that is pruned after ``step`` with ``value``."""
    return f"pruned after epoch {step}: its {objective} {score_text(objective, value)} {reason}"


class LossStudy:
    """One loss's study in one stage: ``<search>/<loss>``, later ``<search>/<loss>@confirm`` and ``@final``.

    Each method that changes it returns when the change is stored. ``tally`` counts its trials.
    """

    def __init__(
        self,
        storage: StudyStorage,
        name: str,
        *,
        space: SearchSpace,
        objective: str,
        pruner: Pruner,
        sampler: Sampler | None,
        attributes: Mapping[str, Any],
        goal: Goal | None = None,
    ) -> None:
        self.storage, self.name, self.objective = storage, name, objective
        self._space, self._sampler, self._goal = space, sampler, goal
        self.tally = Tally()
        with storage.transaction():
            if name not in optuna.get_all_study_names(storage):
                optuna.create_study(study_name=name, storage=storage, direction="maximize")
            self._study = optuna.load_study(study_name=name, storage=storage, pruner=NopPruner())
            self._id = storage.get_study_id_from_name(name)
            known = self.attributes()
            self.set_attributes({key: value for key, value in attributes.items() if known.get(key) != value})
        self._trials: list[FrozenTrial] = []  # kept here because Optuna's storage takes long to list them
        self._seen = SeenStudy(name, storage, self.trials, as_worst=bool(sampler and sampler.models_complete))
        self._rule = pruner.rule(name)
        self._first_with: dict[Params, int] = {}
        self._take_new()

    def _take_new(self) -> None:
        """Take note of the trials that were added to the storage."""
        for trial in self._study.get_trials(deepcopy=False)[len(self._trials) :]:
            self._keep(trial)
            self._seen.take(trial)
            self._rule.add(trial)
            if trial.state != TrialState.WAITING:  # it has no parameters yet
                self._first_with.setdefault(params_of(trial), trial.number)

    def _keep(self, trial: FrozenTrial) -> FrozenTrial:
        """Take note of a trial that was changed in the storage or added to it, and return it."""
        if trial.number < len(self._trials):
            self.tally.count(self._trials[trial.number], -1)
        self.tally.count(trial)
        self._trials[trial.number : trial.number + 1] = [trial]
        return trial

    def trials(self) -> list[FrozenTrial]:
        return list(self._trials)

    def trial(self, number: int) -> FrozenTrial:
        return self._trials[number]

    def _trial_id(self, number: int) -> int:
        return self.storage.get_trial_id_from_study_id_trial_number(self._id, number)

    def attributes(self) -> dict[str, Any]:
        return dict(self._study.user_attrs)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        for key, value in attributes.items():
            self._study.set_user_attr(key, value)

    def enqueue(self, wanted: Iterable[tuple[Mapping[str, Value], Mapping[str, Any]]]) -> None:
        """Enqueue trials given as (parameters, user attributes), except those whose attributes a trial has already."""
        known = [trial.user_attrs for trial in self.trials()]
        with self.storage.transaction():
            for params, attributes in wanted:
                if not any(attributes.items() <= entry.items() for entry in known):
                    self._study.enqueue_trial(dict(params), user_attrs=dict(attributes))
        self._take_new()

    def ask(self, seed: Callable[[int], int]) -> FrozenTrial:
        """Start the next trial: the first enqueued one, otherwise the sampler's proposal."""
        enqueued = self._trials if self.tally.waiting else []
        number = next((t.number for t in enqueued if t.state == TrialState.WAITING), len(self._trials))
        if self._sampler:  # without one, all trials are enqueued
            self._seen.sampler = self._sampler.build(number, self._trials)
        with self.storage.transaction():
            # Not by ``Study.ask``, which lists all trials in order to find the enqueued ones.
            if number < len(self._trials):
                trial_id = self._trial_id(number)
                self.storage.set_trial_state_values(trial_id, TrialState.RUNNING)
            else:
                new = create_trial(state=TrialState.RUNNING, user_attrs={"seed": seed(number)})
                trial_id = self.storage.create_new_trial(self._id, new)
            trial = Trial(self._seen, trial_id)
            if "seed" not in self._keep(self.storage.get_trial(trial_id)).user_attrs:  # it was enqueued
                trial.set_user_attr("seed", seed(number))
            params = self._space.suggest(trial)
            first = self._first_with.setdefault(params, number)
            if first < number:
                trial.set_user_attr("replicate_of", first)
        return self._keep(self.storage.get_trial(trial_id))

    def report(self, number: int, record: EpochRecord) -> tuple[bool, str | None]:
        """Store one epoch of a trial; return True if it is new, and the outcome if the trial is to be pruned.

        A known epoch changes nothing but its checkpoint: it is trained again if the previous attempt died before its
        checkpoint was written, and the new attempt writes the model to another file.
        """
        before, trial_id = self.trial(number), self._trial_id(number)
        key = record_key(record)
        if known := before.user_attrs.get(key):
            if known["checkpoint"] != record["checkpoint"]:
                self.storage.set_trial_user_attr(trial_id, key, {**known, "checkpoint": record["checkpoint"]})
                self._keep(self.storage.get_trial(trial_id))
            return False, None
        earlier = [before.user_attrs[other] for other in record_keys(before) if other < key]
        step, value = len(earlier) + 1, running_value([*earlier, record], self.objective)
        with self.storage.transaction():
            self.storage.set_trial_user_attr(trial_id, key, record)
            self.storage.set_trial_intermediate_value(trial_id, step, value)
        self._keep(self.storage.get_trial(trial_id))
        # Trial 0 takes part in the comparisons, but is never pruned.
        reason = self._rule.reason(number, step, value)
        return True, pruning_sentence(self.objective, step, value, reason) if reason and number else None

    def next_rung(self, number: int) -> tuple[int, float | None] | None:
        """Return :meth:`Pruner.next_rung` of a running trial."""
        step = max(self.trial(number).intermediate_values, default=0)
        return self._rule.next_rung(number, step) if number else None  # trial 0 is never pruned

    def finish(self, number: int, state: TrialState, outcome: str, failure: Mapping[str, str] | None = None) -> None:
        before, trial_id = self.trial(number), self._trial_id(number)
        steps = before.intermediate_values
        with self.storage.transaction():
            self.storage.set_trial_user_attr(trial_id, "outcome", outcome)
            if failure:
                self.storage.set_trial_user_attr(trial_id, "failure", dict(failure))
            if self._goal and self._goal.constraints and (measured := self._goal.measured(before)):
                stored = Trial(self._study, trial_id)
                for constraint in self._goal.constraints:
                    stored.set_constraint(constraint.text, constraint.excess(measured))
            self._study.tell(number, steps[max(steps)] if state == TrialState.COMPLETE else None, state=state)
        self._seen.take(self._keep(self.storage.get_trial(trial_id)))


class SeenStudy(Study):
    """The study ``name`` as its sampler sees it: with failures due to the parameters as bad trials.

    Among ``trials``, the stored ones, these are FAIL, which all of Optuna's samplers ignore: a model that knows nothing
    about the region beyond a cliff keeps proposing it. Here they are PRUNED without a value, which TPE ranks last.

    Models of complete trials only (the Gaussian process, CMA-ES) ignore PRUNED too. With ``as_worst`` the trials are
    COMPLETE with the lowest value so far: the floor padding of Wakabayashi et al., Bayesian optimization with
    experimental failure, 2022. They have the highest excess of every constraint so far.

    In a three-dimensional space of which a third diverges, TPE loses .30 instead of .85 of the trials that it models,
    the Gaussian process .20 instead of .91 (``python -m benchmarks statistics``).
    """

    def __init__(
        self, name: str, storage: BaseStorage, trials: Callable[[], list[FrozenTrial]], as_worst: bool
    ) -> None:
        super().__init__(name, storage, pruner=NopPruner())
        self._stored, self._as_worst = trials, as_worst
        self._bad: dict[int, FrozenTrial] = {}

    def take(self, trial: FrozenTrial) -> None:
        """Take note of a stored trial; one that has ended will not change any more."""
        if failed_by_params(trial):
            self._bad[trial.number] = changed(trial, state=TrialState.PRUNED, intermediate_values={})

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        """Return the trials in the order of their numbers; all of Optuna's samplers call this method."""
        trials = self._stored()
        for number, trial in self._as_bad(trials).items():
            trials[number] = trial
        trials = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def _as_bad(self, trials: Sequence[FrozenTrial]) -> Mapping[int, FrozenTrial]:
        """Return the failures that the sampler learns from, by number."""
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE] if self._bad else []
        if not complete:
            return self._bad
        changes: dict[str, Any] = {}
        if self._as_worst:
            changes = {"state": TrialState.COMPLETE, "values": min(trial.values for trial in complete)}
        worst = {name: max(trial.constraints[name] for trial in complete) for name in complete[0].constraints}
        constraints = create_trial(value=0.0, constraints=worst).system_attrs  # as Optuna stores them
        return {
            number: changed(trial, **changes, system_attrs=trial.system_attrs | constraints)
            for number, trial in self._bad.items()
        }
