"""Studies as they are stored, for who wants to work on them without changing them."""

import copy
from collections.abc import Collection, Sequence
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial
from sqlalchemy import Engine

from search.study.storage import tables
from search.study.storage.driver import DriverStorage


class StorageCopy(DriverStorage):
    """The studies of a database, read once; what is changed stays in memory. Those called ``without`` are not seen."""

    def __init__(self, engine: Engine, without: Collection[str] = ()) -> None:
        super().__init__(_Readable(engine))  # type: ignore[arg-type]  # all that is read of it
        self._without = without

    def load(self, name: str) -> bool:
        """As the driver's; a study that is left out is not there before it is made."""
        return (name in self._study_name_to_id) if name in self._without else super().load(name)

    def answer(self, name: str, number: int, ended: FrozenTrial) -> None:
        """Let trial ``number`` of the study ``name`` be as ``ended`` is."""
        trial_id = self.get_trial_id_from_study_id_trial_number(self._study_name_to_id[name], number)
        answered = copy.copy(ended)
        answered._trial_id, answered.number = trial_id, number
        self._set_trial(trial_id, answered)

    def _write(self, changes: tables.Changes) -> None:
        """Nothing is written."""

    def _make(self, directions: Sequence[StudyDirection], name: str) -> int:
        return -1  # no row

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """In memory alone."""
        InMemoryStorage.set_study_user_attr(self, study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """In memory alone."""
        InMemoryStorage.set_study_system_attr(self, study_id, key, value)


class _Readable:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def remove_session(self) -> None:
        """There is none."""
