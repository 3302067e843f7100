"""An Optuna study of one loss in one stage, as the sampler and the driver see it."""

import copy
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna import Study
from optuna.pruners import NopPruner
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from search.study.budget import Tally
from search.study.pruners import Pruner
from search.study.sampler import Sampler
from search.study.storage.driver import DriverStorage
from search.trials import TrialValue, configuration_of, record_key, record_keys
from spaces.search_space import SearchSpace
from spaces.space import Params, Value
from trainables.spec import EpochRecord

# A study as its sampler sees it: what cannot be trained is a bad configuration, and not an unknown one.

THE_CONFIGURATION_S = ("DIVERGED", "OUT_OF_MEMORY")
"""The failures that a configuration is the cause of. CODE_ERROR and LOST say nothing of it."""


class SeenStudy(Study):
    """The study ``name``, whose trials that diverged or ran out of memory seem PRUNED before their first value.

    They are FAIL, which all of Optuna's samplers pass over: a model that knows nothing of what lies beyond a cliff
    keeps proposing it. TPE takes PRUNED trials for worse than complete ones, the earlier they ended the worse, and
    those without a value last.

    Models of complete trials alone (the Gaussian process, CMA-ES) pass over PRUNED too. With ``as_worst`` the trials
    seem COMPLETE with the lowest value so far instead: the floor padding of Wakabayashi et al., Bayesian optimization
    with experimental failure, 2022.

    Measured beside a diverging third of a three-dimensional space, 16 trials one after the other, told FAIL and told
    this: TPE loses .80 and .30 of the trials that it models, and its best value is .847 and .911; the Gaussian process
    .91 and .18, .862 and .965 (PRUNED changes nothing there); CMA-ES, which draws again, .17 and .16, .932 and .933
    (``make bench-statistics``).

    The storage, and so tables and MLflow, still has them as they ended.
    """

    def __init__(self, name: str, storage: BaseStorage, *, as_worst: bool) -> None:
        super().__init__(name, storage, pruner=NopPruner())
        self._as_worst = as_worst
        self._bad: dict[int, FrozenTrial] = {}

    def take(self, trial: FrozenTrial) -> None:
        """Take a stored trial that may have ended; it will not change any more if it has."""
        failure = trial.user_attrs.get("failure")
        if trial.state == TrialState.FAIL and failure and failure["cause"] in THE_CONFIGURATION_S:
            self._bad[trial.number] = _changed(trial, state=TrialState.PRUNED, intermediate_values={})

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        """What all of Optuna's samplers ask; trials are in the order of their numbers."""
        trials = list(super()._get_trials(deepcopy=False, use_cache=use_cache))
        bad = self._bad
        complete = [trial for trial in trials if trial.state == TrialState.COMPLETE] if bad and self._as_worst else []
        if complete:
            worst = min(trial.values[0] for trial in complete)
            bad = {number: _changed(trial, state=TrialState.COMPLETE, values=[worst]) for number, trial in bad.items()}
        for number, trial in bad.items():
            trials[number] = trial
        if states is not None:
            trials = [trial for trial in trials if trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials


def _changed(trial: FrozenTrial, **changes: Any) -> FrozenTrial:
    changed = copy.copy(trial)
    for name, value in changes.items():
        setattr(changed, name, value)
    return changed


# Optuna, wrapped once: a study holds everything that is known of its trials, and outlives every process.
#
# A trial of ours has, beside Optuna's state, parameters and intermediate values, these user attributes:
# ``params`` (all values of the search space, pinned ones too), ``seed``, ``epoch:<n>`` (one record an epoch; of a
# cross-validation ``epoch:<fold>:<n>``), ``outcome`` (why it ended as it did), ``failure`` (cause and reason) where it
# failed, and ``replicate_of`` (the first trial of the study with the same parameters) where another seed of a
# configuration is trained. The studies of later stages also say which ``configuration`` of the search is trained again.


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """What came of an epoch that a trial reported: whether it was new, and why the trial should be pruned, if so."""

    is_new: bool
    prune: str | None = None


def pruning_sentence(trial_value: TrialValue, step: int, value: float, reason: str) -> str:
    """The outcome of a trial that is pruned after ``step``, at which it had ``value``."""
    return f"pruned after {trial_value.unit} {step}: its {trial_value.objective} {value:.4f} {reason}"


class LossStudy:
    """One loss's study in one stage: ``<search>/<loss>``, later ``<search>/<loss>@confirm`` and ``@final``.

    Each method that changes it returns when the change is stored. ``tally`` counts its trials.
    """

    def __init__(
        self,
        storage: DriverStorage,
        name: str,
        *,
        space: SearchSpace,
        trial_value: TrialValue,
        pruner: Pruner,
        sampler: Sampler | None,
        attributes: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.trial_value = trial_value
        self.tally = Tally()
        self._space = space
        self._sampler = sampler
        self._storage = storage
        self._study = optuna.create_study(
            study_name=name, storage=storage, direction="maximize", load_if_exists=True, pruner=NopPruner()
        )
        self._seen = SeenStudy(name, storage, as_worst=sampler is not None and sampler.models_complete)
        self.set_attributes({key: value for key, value in attributes.items() if self.attributes().get(key) != value})
        self._rule = pruner.rule(name)
        self._first_with: dict[Params, int] = {}
        for trial in self.trials():
            self._take(trial)

    def _take(self, trial: FrozenTrial) -> None:
        """Count a trial that is stored already."""
        self.tally.add(trial)
        self._seen.take(trial)
        self._rule.add(trial)
        if "params" in trial.user_attrs:
            self._first_with.setdefault(configuration_of(trial), trial.number)

    def trials(self) -> list[FrozenTrial]:
        """All trials, as they are stored."""
        return self._study.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial:
        """One trial, as it is stored."""
        return self._storage.get_trial(self._id_of(number))

    def _id_of(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number)

    def attributes(self) -> dict[str, Any]:
        """The study's own user attributes."""
        return dict(self._study.user_attrs)

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Set some of the study's own user attributes."""
        for key, value in attributes.items():
            self._study.set_user_attr(key, value)

    def enqueue(self, wanted: Iterable[tuple[Mapping[str, Value], Mapping[str, Any]]]) -> None:
        """Enqueue trials given as (parameters, user attributes), leaving out those whose attributes are known."""
        known = [trial.user_attrs for trial in self.trials()]
        with self._storage.transaction():
            for parameters, attributes in wanted:
                if not any(attributes.items() <= entry.items() for entry in known):
                    self._study.enqueue_trial(dict(parameters), user_attrs=dict(attributes))
        self._take_new(len(known))

    def add(self, trials: Iterable[FrozenTrial]) -> None:
        """Add trials that ended elsewhere, all of them or none."""
        before = self.tally.trials
        with self._storage.transaction():
            self._study.add_trials(trials)
        self._take_new(before)

    def _take_new(self, known: int) -> None:
        for trial in self.trials()[known:]:
            self._take(trial)

    def ask(self, seed: Callable[[int], int]) -> FrozenTrial:
        """Start the next trial: an enqueued one where there is one, else the sampler's proposal."""
        trials = self.trials()
        enqueued = trials if self.tally.waiting else []
        waiting = next((trial for trial in enqueued if trial.state == TrialState.WAITING), None)
        number = waiting.number if waiting else len(trials)
        if self._sampler:  # without one, all trials are enqueued
            self._seen.sampler = self._sampler.sampler_of(number, trials)
        with self._storage.transaction():
            trial = self._seen.ask()
            configuration = self._space.suggest(trial)
            trial.set_user_attr("params", dict(configuration))
            if "seed" not in trial.user_attrs:
                trial.set_user_attr("seed", seed(number))
            first = self._first_with.get(configuration, number)
            if first < number:
                trial.set_user_attr("replicate_of", first)
        self._first_with[configuration] = min(first, number)
        begun = self.trial(number)
        if waiting:
            self.tally.replace(waiting, begun)
        else:
            self.tally.add(begun)
        return begun

    def report(self, number: int, record: EpochRecord) -> TrialReport:
        """Store one epoch of a trial, and compare it. An epoch that is known is passed over.

        An attempt that trains a known epoch again, since the one before died before its checkpoint was written, has
        the model in a file of its own.
        """
        before = self.trial(number)
        key = record_key(record)
        if known := before.user_attrs.get(key):
            if known["checkpoint"] != record["checkpoint"]:
                again = {**known, "checkpoint": record["checkpoint"]}
                self._storage.set_trial_user_attr(before._trial_id, key, again)
            return TrialReport(is_new=False)
        earlier = [before.user_attrs[other] for other in record_keys(before) if other < key]
        reached = self.trial_value([*earlier, record])
        with self._storage.transaction():
            self._storage.set_trial_user_attr(before._trial_id, key, record)
            if reached:
                self._storage.set_trial_intermediate_value(before._trial_id, *reached)
        self.tally.replace(before, self.trial(number))
        if reached is None:
            return TrialReport(is_new=True)
        step, value = reached
        # Trial 0 is asked too, so that it takes part in the comparisons; the answer is not for it.
        reason = self._rule.reason(number, step, value)
        if not (reason and number):
            return TrialReport(is_new=True)
        return TrialReport(is_new=True, prune=pruning_sentence(self.trial_value, step, value, reason))

    def next_rung(self, number: int) -> tuple[int, float | None] | None:
        """After which step a running trial is compared next, and the least value that would go on there now.

        The value is None where nothing is compared yet, and all of it where no comparison follows.
        """
        if number == 0:
            return None
        return self._rule.next_rung(number, max(self.trial(number).intermediate_values, default=0))

    def finish(self, number: int, state: TrialState, outcome: str, failure: Mapping[str, str] | None = None) -> None:
        """Tell the study how a trial ended and why."""
        before = self.trial(number)
        steps = before.intermediate_values
        with self._storage.transaction():
            self._storage.set_trial_user_attr(before._trial_id, "outcome", outcome)
            if failure:
                self._storage.set_trial_user_attr(before._trial_id, "failure", dict(failure))
            self._study.tell(number, steps[max(steps)] if state == TrialState.COMPLETE else None, state=state)
        ended = self.trial(number)
        self.tally.replace(before, ended)
        self._seen.take(ended)
        self._rule.end(ended)
