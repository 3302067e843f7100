"""The driver's storage: studies held in memory, each change written to the database first."""

import functools
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from search.study.storage import tables
from trainables.mistakes import Mistakes
from trainables.storage import cause_of

# A database that is away for a moment is asked again.

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_PAUSES_S = (0.1, 0.5, 2, 5, 10, 20, 30)
_UNTIL_MADE_S = 0.5
"""After such a pause a driver that has just begun has made its tables."""


def _is_outage(error: Exception) -> bool:
    import sqlalchemy  # half a second, for which only what opens a storage waits

    return isinstance(error, sqlalchemy.exc.DBAPIError | optuna.exceptions.StorageInternalError)


def _refuse_damaged(error: Exception, *, waited: bool) -> None:
    """Asking again mends no file that is no database.

    Raises:
        Mistakes: ``error`` says so.
    """
    import sqlalchemy

    cause = cause_of(error, sqlalchemy.exc.DBAPIError)
    if cause is None:
        return
    if waited and re.search("no such (table|column)", str(cause.orig)):
        raise Mistakes(
            f"The database of the studies is not one that this version of Optuna made ({cause.orig}); restore it from "
            "a copy, or name another one."
        ) from error
    # SQLite's other kinds, which derive from this one, are of a database that is locked or being made.
    if type(cause.orig) is sqlite3.DatabaseError:
        raise Mistakes(
            f"The database of the studies is damaged, or no database ({cause.orig}); restore it from a copy, or search "
            "under a new name."
        ) from error


def retry(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call the storage again when it is away for a moment (a database restarted): a minute in all, then give up."""

    @functools.wraps(method)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        for pause in _PAUSES_S:
            try:
                return method(*args, **kwargs)
            except Exception as error:
                _refuse_damaged(error, waited=pause > _UNTIL_MADE_S)
                if not _is_outage(error):
                    raise
                logger.warning("The storage does not answer (%s); asking again in %s s.", type(error).__name__, pause)
                time.sleep(pause)
        return method(*args, **kwargs)

    return call


# The studies as the driver has them: read once, held in memory, and every change written down before it counts.
#
# Only one driver writes a search, so nothing that it wrote has to be read again. To Optuna this is a storage like any
# other; to everybody else the studies are those in the database.


class DriverStorage(InMemoryStorage):
    """Studies in memory that are written through to ``database``, each :meth:`transaction` at once.

    Ids are those of the memory; the rows in the database have others.
    """

    def __init__(self, database: RDBStorage) -> None:
        super().__init__()
        self.database = database
        self._study_rows: dict[int, int] = {}
        self._trial_rows: dict[int, int] = {}
        self._changes: tables.Changes | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes within are stored when it ends, together or not at all; within another one, with that.

        Whoever acts on them has to do so afterwards. An error within leaves the memory ahead of the database, which
        is as if the driver had died: the search goes on from the database.
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
        """The trial's own row, as it is when the transaction ends."""
        assert self._changes is not None
        study_id, _ = self._trial_id_to_study_id_and_number[trial_id]
        self._changes.trials[trial_id] = (self._study_rows[study_id], self._get_trial(trial_id))

    @retry
    def load(self, name: str) -> bool:
        """Read the study ``name`` into memory, where it is not there yet; whether there is one."""
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
            self._adopt(study_id, trial)
        return True

    def trials_of(self, name: str) -> list[FrozenTrial]:
        """The trials of the study ``name``; none where there is no such study, and none is made."""
        return self.get_all_trials(self._study_name_to_id[name], deepcopy=False) if self.load(name) else []

    def attributes_of(self, name: str) -> dict[str, Any]:
        """The user attributes of the study ``name``; none where there is no such study, and none is made."""
        return dict(self._studies[self._study_name_to_id[name]].user_attrs) if self.load(name) else {}

    def _adopt(self, study_id: int, trial: FrozenTrial) -> None:
        """Take a stored trial as it is. ``create_new_trial`` would copy it deeply, and would be all that takes time."""
        self._max_trial_id += 1
        self._trial_rows[self._max_trial_id] = trial._trial_id
        trial._trial_id = self._max_trial_id
        self._trial_id_to_study_id_and_number[trial._trial_id] = (study_id, trial.number)
        self._studies[study_id].trials.append(trial)
        self._studies[study_id].param_distribution.update(trial.distributions)
        self._update_cache(trial._trial_id, study_id)

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """As Optuna's; one that is stored already is read."""
        assert study_name is not None
        row_id = None if self.load(study_name) else self._make(directions, study_name)
        study_id = super().create_new_study(directions, study_name)  # refuses a name that is there
        assert row_id is not None
        self._study_rows[study_id] = row_id
        return study_id

    @retry
    def _make(self, directions: Sequence[StudyDirection], name: str) -> int:
        try:
            return self.database.create_new_study(directions, name)
        except DuplicatedStudyError:  # made, and its answer lost
            return self.database.get_study_id_from_name(name)

    def get_study_id_from_name(self, study_name: str) -> int:
        """As Optuna's; one that is stored is read first."""
        self.load(study_name)
        return super().get_study_id_from_name(study_name)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """As Optuna's."""
        retry(self.database.set_study_user_attr)(self._study_rows[study_id], key, value)
        super().set_study_user_attr(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """As Optuna's."""
        retry(self.database.set_study_system_attr)(self._study_rows[study_id], key, value)
        super().set_study_system_attr(study_id, key, value)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """As Optuna's."""
        with self.transaction():
            trial_id = super().create_new_trial(study_id, template_trial)
            self._put_trial(trial_id)
            for row in tables.rows_of(self._get_trial(trial_id)):
                self._put(trial_id, row)
        return trial_id

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """As Optuna's."""
        with self.transaction():
            super().set_trial_param(trial_id, param_name, param_value_internal, distribution)
            self._put(trial_id, tables.param_row(param_name, param_value_internal, distribution))

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """As Optuna's."""
        with self.transaction():
            if not super().set_trial_state_values(trial_id, state, values):
                return False
            self._put_trial(trial_id)
            for objective, value in enumerate(values or ()):
                self._put(trial_id, tables.value_row(objective, value))
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """As Optuna's."""
        with self.transaction():
            super().set_trial_intermediate_value(trial_id, step, intermediate_value)
            self._put(trial_id, tables.intermediate_value_row(step, intermediate_value))

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As Optuna's."""
        with self.transaction():
            super().set_trial_user_attr(trial_id, key, value)
            self._put(trial_id, tables.attribute_row(tables.USER_ATTRIBUTES, key, value))

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """As Optuna's."""
        with self.transaction():
            super().set_trial_system_attr(trial_id, key, value)
            self._put(trial_id, tables.attribute_row(tables.SYSTEM_ATTRIBUTES, key, value))
