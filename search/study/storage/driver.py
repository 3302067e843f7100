"""The driver's storage: studies held in memory, each change written to the database first."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search.study.storage import tables
from search.study.storage.retry import retry
from trainables.errors import InvalidInput


class DriverStorage(InMemoryStorage):
    """A write-through cache of ``database``: studies are read once and every :meth:`transaction` is written at once.

    Only one driver writes a search, so it never has to read its own changes again. Ids are those of the memory, not
    those of the rows in the database.
    """

    def __init__(self, database: RDBStorage) -> None:
        super().__init__()
        self.database = database
        self._study_rows: dict[int, int] = {}
        self._trial_rows: dict[int, int] = {}
        self._changes: tables.Changes | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all changes made in this context when it ends, atomically; nested transactions are written together.

        Act on the changes after the context only. An error leaves the memory ahead of the database, as if the driver
        had died: the search is resumed from the database.
        """
        if self._changes is not None:
            yield
            return
        self._changes = changes = tables.Changes()
        try:
            yield
            if changes.trials or changes.rows:
                self._write(changes)
        finally:
            self._changes = None

    @retry
    def _write(self, changes: tables.Changes) -> None:
        with self.database.engine.begin() as connection:
            created = changes.write(connection, self._trial_rows)
        self._trial_rows |= created

    def _put(self, trial_id: int, row: tuple[tables.Table, tables.Row]) -> None:
        assert self._changes is not None
        self._changes.put(trial_id, *row)

    def _put_trial(self, trial_id: int) -> None:
        """Write the trial's row, in its state at the end of the transaction."""
        assert self._changes is not None
        study_id, _ = self._trial_id_to_study_id_and_number[trial_id]
        self._changes.trials[trial_id] = (self._study_rows[study_id], self._get_trial(trial_id))

    @retry
    def load(self, name: str) -> bool:
        """Read the study ``name`` into memory if needed; return False if it does not exist."""
        if name in self._study_name_to_id:
            return True
        with self.database.engine.connect() as connection:
            study = tables.read_study(connection, name)
            if study is None:
                return False
            trials = tables.read_trials(connection, study.row_id)
        study_id = super().create_new_study([StudyDirection.MAXIMIZE], name)
        self._study_rows[study_id] = study.row_id
        self._studies[study_id].user_attrs = study.user_attrs
        self._studies[study_id].system_attrs = study.system_attrs
        for trial in trials:
            if trial.state == TrialState.COMPLETE and trial.value is None:
                raise InvalidInput(
                    f"Trial {trial.number} of {name} is complete and has no value: the database of the studies was "
                    "changed; restore it from a copy."
                )
            self._adopt(study_id, trial)
        return True

    def trials_of(self, name: str) -> list[FrozenTrial]:
        """Return the trials of the study ``name``; empty if it does not exist."""
        return self.get_all_trials(self._study_name_to_id[name], deepcopy=False) if self.load(name) else []

    def attributes_of(self, name: str) -> dict[str, Any]:
        """Return the user attributes of the study ``name``; empty if it does not exist."""
        return dict(self._studies[self._study_name_to_id[name]].user_attrs) if self.load(name) else {}

    def _adopt(self, study_id: int, trial: FrozenTrial) -> None:
        """Add a stored trial without the deep copy of ``create_new_trial``, which would dominate the loading time."""
        self._max_trial_id += 1
        self._trial_rows[self._max_trial_id] = trial._trial_id
        trial._trial_id = self._max_trial_id
        self._trial_id_to_study_id_and_number[trial._trial_id] = (study_id, trial.number)
        self._studies[study_id].trials.append(trial)
        self._studies[study_id].param_distribution.update(trial.distributions)
        self._update_cache(trial._trial_id, study_id)

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """Create a study; one that is stored already is read."""
        assert study_name is not None
        row_id = None if self.load(study_name) else self._make(directions, study_name)
        study_id = super().create_new_study(directions, study_name)  # raises if the name exists
        assert row_id is not None
        self._study_rows[study_id] = row_id
        return study_id

    @retry
    def _make(self, directions: Sequence[StudyDirection], name: str) -> int:
        try:
            return self.database.create_new_study(directions, name)
        except DuplicatedStudyError:  # created, but the response was lost
            return self.database.get_study_id_from_name(name)

    def get_study_id_from_name(self, study_name: str) -> int:
        """Return the id of a study, reading it first if needed."""
        self.load(study_name)
        return super().get_study_id_from_name(study_name)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Write a user attribute of a study."""
        retry(self.database.set_study_user_attr)(self._study_rows[study_id], key, value)
        super().set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Write a system attribute of a study."""
        retry(self.database.set_study_system_attr)(self._study_rows[study_id], key, value)
        super().set_study_system_attr(study_id, key, value)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Write a new trial."""
        with self.transaction():
            trial_id = super().create_new_trial(study_id, template_trial)
            self._put_trial(trial_id)
            for row in tables.rows_of(self._get_trial(trial_id)):
                self._put(trial_id, row)
        return trial_id

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Write a parameter of a trial."""
        with self.transaction():
            super().set_trial_param(trial_id, param_name, param_value_internal, distribution)
            self._put(trial_id, tables.param_row(param_name, param_value_internal, distribution))

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Write the state of a trial and its values."""
        with self.transaction():
            if not super().set_trial_state_values(trial_id, state, values):
                return False
            self._put_trial(trial_id)
            for objective, value in enumerate(values or ()):
                self._put(trial_id, tables.value_row(objective, value))
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Write an intermediate value of a trial."""
        with self.transaction():
            super().set_trial_intermediate_value(trial_id, step, intermediate_value)
            self._put(trial_id, tables.intermediate_value_row(step, intermediate_value))

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Write a user attribute of a trial."""
        with self.transaction():
            super().set_trial_user_attr(trial_id, key, value)
            self._put(trial_id, tables.attribute_row(tables.USER_ATTRIBUTES, key, value))

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Write a system attribute of a trial."""
        with self.transaction():
            super().set_trial_system_attr(trial_id, key, value)
            self._put(trial_id, tables.attribute_row(tables.SYSTEM_ATTRIBUTES, key, value))
