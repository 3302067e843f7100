"""Optuna, wrapped once: a study holds everything that is known of its trials, and outlives every process.

A trial of ours has, beside Optuna's state, parameters and intermediate values, these user attributes:
``params`` (all values of the search space, pinned ones too), ``seed``, ``epoch:<n>`` (one record an epoch; of a
cross-validation ``epoch:<fold>:<n>``), ``outcome`` (why it ended as it did), ``failure`` (cause and reason) where it
failed, and ``replicate_of`` (the first trial of the study with the same parameters) where another seed of a
configuration is trained. The studies of later stages also say which ``configuration`` of the search is trained again.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.pruners import NopPruner
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from search.study.pruners import Pruner
from search.study.records import record_key, record_keys
from search.study.samplers.sampler import Sampler
from search.study.storage import retry
from search.study.trial_value import TrialValue
from spaces.search_space import SearchSpace
from spaces.value import Value
from trainables.training.epoch_record import EpochRecord


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of an epoch that a trial reported: whether it was new, and why the trial should be pruned, if so."""

    is_new: bool
    prune: str | None = None


class LossStudy:
    """One loss's study in one stage: ``<search>/<loss>``, later ``<search>/<loss>@confirm`` and ``@final``."""

    def __init__(
        self,
        storage: RDBStorage,
        name: str,
        *,
        space: SearchSpace,
        trial_value: TrialValue,
        pruner: Pruner,
        sampler: Sampler | None,
        attributes: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._space = space
        self.trial_value = trial_value
        self._sampler = sampler
        self._pruner = pruner
        self._study = self._open(storage, attributes)
        self._live: dict[int, optuna.Trial] = {}

    @retry
    def _open(self, storage: RDBStorage, attributes: Mapping[str, Any]) -> optuna.Study:
        study = optuna.create_study(
            study_name=self.name, storage=storage, direction="maximize", load_if_exists=True, pruner=NopPruner()
        )
        for key, value in attributes.items():
            if study.user_attrs.get(key) != value:
                study.set_user_attr(key, value)
        return study

    @retry
    def trials(self) -> list[FrozenTrial]:
        """All trials, as they are stored."""
        return self._study.get_trials(deepcopy=False)

    @retry
    def trial(self, number: int) -> FrozenTrial:
        """One trial, as it is stored."""
        return self._study.get_trials(deepcopy=False)[number]

    @retry
    def attributes(self) -> dict[str, Any]:
        """The study's own user attributes."""
        return dict(self._study.user_attrs)

    @retry
    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set some of the study's own user attributes."""
        for key, value in attributes.items():
            self._study.set_user_attr(key, value)

    @retry
    def enqueue(self, wanted: Iterable[tuple[Mapping[str, Value], Mapping[str, Any]]]) -> None:
        """Enqueue trials given as (parameters, user attributes), leaving out those whose attributes are known."""
        known = [trial.user_attrs for trial in self._study.get_trials(deepcopy=False)]
        for parameters, attributes in wanted:
            if not any(attributes.items() <= entry.items() for entry in known):
                self._study.enqueue_trial(dict(parameters), user_attrs=dict(attributes))

    def ask(self, seed: Callable[[int], int]) -> FrozenTrial:
        """Start the next trial: an enqueued one where there is one, else the sampler's proposal."""
        return self._ask(seed, [trial.number for trial in self.trials() if trial.state == TrialState.RUNNING])

    @retry
    def _ask(self, seed: Callable[[int], int], running: Sequence[int]) -> FrozenTrial:
        trials = self._study.get_trials(deepcopy=False)
        # A trial that began when the storage went away in the middle of this is the one to go on with.
        begun = [entry for entry in trials if entry.state == TrialState.RUNNING and entry.number not in running]
        waiting = [entry.number for entry in trials if entry.state == TrialState.WAITING]
        self._prepare(min(waiting, default=len(trials) - len(begun)), trials)
        return self._start(optuna.Trial(self._study, begun[0]._trial_id) if begun else self._study.ask(), seed)

    @retry
    def take_up(self, number: int, seed: Callable[[int], int]) -> FrozenTrial:
        """Go on with a trial whose driver or actor is gone, under its own number and with its own parameters."""
        trials = self._study.get_trials(deepcopy=False)
        self._prepare(number, trials)
        return self._start(optuna.Trial(self._study, trials[number]._trial_id), seed)

    def _prepare(self, number: int, trials: Sequence[FrozenTrial]) -> None:
        if self._sampler:  # without one, all trials are enqueued
            self._study.sampler = self._sampler.build(number, trials)

    def _start(self, trial: optuna.Trial, seed: Callable[[int], int]) -> FrozenTrial:
        configuration = self._space.suggest(trial)  # parameters that are stored already are answered from the storage
        if "seed" not in trial.user_attrs:
            trial.set_user_attr("seed", seed(trial.number))
        trial.set_user_attr("params", dict(configuration))
        earlier = self._study.get_trials(deepcopy=False)[: trial.number]
        if same := [entry.number for entry in earlier if entry.user_attrs.get("params") == configuration]:
            trial.set_user_attr("replicate_of", same[0])
        self._live[trial.number] = trial
        return self.trial(trial.number)

    @retry
    def report(self, number: int, record: EpochRecord) -> Report:
        """Store one epoch of a trial, and ask the pruner about it. An epoch that is known is passed over."""
        stored = self.trial(number)
        key = record_key(record)
        before = [stored.user_attrs[other] for other in record_keys(stored) if other < key]
        reached = self.trial_value([*before, record])
        is_new = key not in stored.user_attrs
        if not is_new and (reached is None or reached[0] in stored.intermediate_values):
            return Report(is_new=False)
        trial = self._live[number]
        trial.set_user_attr(key, record)
        if reached is None:
            return Report(is_new=is_new)
        step, value = reached
        trial.report(value, step=step)
        # Trial 0 is asked too, so that it takes part in the comparisons; the answer is not for it.
        reason = self._pruner.reason(self._study, self.trial(number))
        if not (reason and number):
            return Report(is_new=is_new)
        prune = f"pruned after {self.trial_value.unit} {step}: its {self.trial_value.objective} {value:.4f} {reason}"
        return Report(is_new=is_new, prune=prune)

    @retry
    def finish(self, number: int, state: TrialState, outcome: str, failure: Mapping[str, str] | None = None) -> None:
        """Tell the study how a trial ended and why."""
        trial = self._live[number]
        stored = self.trial(number)
        if stored.state.is_finished():  # stored before the storage went away
            return
        trial.set_user_attr("outcome", outcome)
        if failure:
            trial.set_user_attr("failure", dict(failure))
        value = stored.intermediate_values[max(stored.intermediate_values)] if state == TrialState.COMPLETE else None
        self._study.tell(trial, value, state=state)
        del self._live[number]
