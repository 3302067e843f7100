"""Optuna's storage on the journal of a search: written by its driver, read by any process, or copied into memory."""

import gc
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial

from search.study.journal import JournalReader, JournalWriter, Log
from trainables.common.errors import Failure
from trainables.common.files import reading

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
        if self._waiting is None:
            self._pass_on(lines)
        else:
            self._waiting += lines

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Pass all operations of this context to ``append`` at once when it ends."""
        if self._waiting is not None:
            yield
            return
        self._waiting = lines = list[str]()
        try:
            yield
        except BaseException:
            self._failed = True
            raise
        finally:
            self._waiting = None
        if lines:
            self._pass_on(lines)

    def _pass_on(self, lines: list[str]) -> None:
        if self._failed:
            raise Failure("An earlier change of the studies failed; run the same command again to resume the search.")
        self._failed = True
        self._append(lines)
        self._failed = False


class StudyStorage(JournalStorage):
    """The studies in ``journal``, by default none yet and in memory alone; :meth:`close` closes its file."""

    def __init__(self, journal: Journal | None = None, close: Callable[[], object] = lambda: None) -> None:
        journal = journal or Journal()
        super().__init__(journal)
        self._journal, self.close = journal, close

    def transaction(self) -> AbstractContextManager[None]:
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

    def hidden(log: Log) -> Log:  # its trials keep their places in the journal
        name = log.get("study_name")
        return {**log, "study_name": f"hidden/{name}"} if name in without else log

    with _replaying(path):
        return StudyStorage(Journal([hidden(log) for log in JournalReader(path).read()]))
