"""The journal of a search's studies: one file of JSON lines, appended by the driver and read by any process.

A line is one operation of Optuna's ``JournalStorage``, so that Optuna and its dashboard can read the file, too. The
driver adds two keys: ``left``, the number of further lines in the same transaction, and ``crc``, the CRC-32 of these
lines so far. A transaction counts when all of its lines are there. Of other programs' lines, attributes (a dashboard's
notes) are skipped; others are an error, since Optuna numbers studies and trials by their lines. Optuna is not imported.
"""

import json
import os
import re
import weakref
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from search.trials import Tally
from trainables.common.errors import Failure, InvalidInput
from trainables.common.files import reading
from trainables.common.storage import storage_errors

Log = dict[str, Any]
"""An operation as JSON."""

# The codes of the operations that are counted here, and states of trials: Optuna's file format.

CREATE_STUDY, SET_STUDY_USER_ATTR, CREATE_TRIAL, SET_STATE, SET_VALUE, SET_USER_ATTR = 0, 2, 4, 6, 7, 8
OPERATIONS = frozenset(range(10))
NOTES = frozenset({2, 3, 8, 9})
"""The operations that set an attribute."""
State = Enum("State", ("RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"), start=0)

_ADDED = re.compile(rb',"left":(\d+),"crc":(\d+)}$')


class JournalReader:
    """Reader of the journal at ``path``; ``end`` and ``crc`` are those of the last complete transaction so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end = self.crc = 0
        self._line = 0

    def read(self) -> list[Log]:
        """Return the operations completed since the last call; raise if a line was changed, removed or added."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.end)
                *lines, _ = file.read().split(b"\n")  # the last one is empty, or not written to its end
        except FileNotFoundError:
            return []
        complete, waiting, end, crc = list[bytes](), list[bytes](), self.end, self.crc
        for number, line in enumerate(lines, start=self._line + 1):
            end += len(line) + 1
            left = b"0"
            if added := _ADDED.search(line):
                left, expected = added.groups()
                crc = zlib.crc32(line[: added.end(1)], crc)
                if crc != int(expected):
                    raise self._damaged(number)
                waiting.append(line)
            elif (operation := _operation(line)) is None:
                raise self._damaged(number)
            elif operation not in NOTES:
                raise InvalidInput(
                    f"{self.path} was written by another program: line {number} has no checksum of Holdout's, and it "
                    "changes trials or their numbers for every reader. Remove that line and the others without "
                    '"crc" at their end, and propose trials with `holdout enqueue`.'
                )
            elif waiting:
                continue
            if left == b"0":
                complete += waiting
                waiting = []
                self.end, self.crc, self._line = end, crc, number
        with reading(self.path):
            logs: list[Log] = json.loads(b"[%s]" % b",".join(complete))
            if unknown := {log["op_code"] for log in logs} - OPERATIONS:
                raise ValueError(f"operation {unknown}")
        return logs

    def _damaged(self, number: int) -> InvalidInput:
        counts = StudyCounts()
        place = ""
        for line in self.path.read_bytes().split(b"\n")[:number]:
            with suppress(ValueError, KeyError, IndexError, TypeError):  # it is the damaged one, or follows from it
                place = counts.apply(json.loads(line))
        where = f"line {number}{f', at {place}' if place else ''}"
        return InvalidInput(
            f"{self.path} is damaged: {where}, or a line before it, was changed or removed. Restore the file from a "
            "copy, or search under a new name."
        )


def _operation(line: bytes) -> int | None:
    """Return the code of the operation in a line; None if it has none."""
    try:
        return int(json.loads(line)["op_code"])
    except (ValueError, TypeError, LookupError):
        return None


class JournalWriter(JournalReader):
    """Writer of the journal at ``path``, from :meth:`begin` until ``close`` is called; no other process writes it."""

    def begin(self) -> list[Log]:
        """Open the file, creating it if needed, and return its operations; remove an incomplete transaction.

        Raises:
            DiskFull: there is no space for it, now or during a later append.
            StorageFailure: it cannot be written.
            InvalidInput: it is damaged.
        """
        logs = self.read()
        with storage_errors(self.path):
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self.close = weakref.finalize(self, os.close, self._file)
            if self._size() > self.end:
                os.truncate(self._file, self.end)
        return logs

    def append(self, logs: Sequence[str]) -> None:
        """Write one transaction, given as JSON; raise if another process wrote operations with a driver's keys."""
        with storage_errors(self.path):
            if self._size() > self.end and (self.read() or self._size() > self.end):
                raise Failure(f"Another process writes {self.path}; end it, then run the same command again.")
            left = memoryview(self._encoded(logs))
            while left:
                left = left[os.write(self._file, left) :]
            os.fsync(self._file)

    def _encoded(self, logs: Sequence[str]) -> bytes:
        lines = b""
        for left, log in zip(reversed(range(len(logs))), logs, strict=True):
            line = f'{log[:-1]},"left":{left}'.encode()
            self.crc = zlib.crc32(line, self.crc)
            lines += b'%s,"crc":%d}\n' % (line, self.crc)
        self.end += len(lines)
        self._line += len(logs)
        return lines

    def _size(self) -> int:
        return os.fstat(self._file).st_size


@dataclass
class _Trial:
    """What is counted of a trial, with Optuna's names."""

    study: str
    number: int
    state: State
    value: float | None
    user_attrs: dict[str, Any]


class StudyCounts:
    """The names, user attributes and tallies of the studies in a journal.

    ``reports`` lists (trial number, step, value) of all intermediate values of each study, in the order of the reports.
    """

    def __init__(self) -> None:
        self.attributes: dict[str, dict[str, Any]] = {}
        self.reports: dict[str, list[tuple[int, int, float]]] = {}
        self._names: list[str] = []
        self._trials: list[_Trial] = []
        self._of_study: dict[str, list[Any]] = {}  # _Trial, which a tally takes for Optuna's
        self._tallies: dict[str, Tally] = {}

    def tally(self, study: str) -> Tally:
        """Return the tally of a study; it is empty if there is none."""
        if study not in self._tallies:
            self._tallies[study] = Tally.of(self._of_study.get(study, ()))
        return self._tallies[study]

    def apply(self, log: Log) -> str:
        """Take note of an operation; return the study, or the study and the trial, that it changes."""
        operation = log["op_code"]
        if operation == CREATE_STUDY:
            name = str(log["study_name"])
            self._names.append(name)
            self.attributes[name], self.reports[name], self._of_study[name] = {}, [], []
            return name
        if operation == CREATE_TRIAL:
            name = self._names[log["study_id"]]
            state, attributes = State(log.get("state", 0)), dict(log.get("user_attrs", ()))
            trial = _Trial(name, len(self._of_study[name]), state, log.get("value"), attributes)
            self._trials.append(trial)
            self._of_study[name].append(trial)
        elif "study_id" in log:
            name = self._names[log["study_id"]]
            if operation == SET_STUDY_USER_ATTR:
                self.attributes[name] |= log["user_attr"]
            return name
        else:
            trial = self._trials[log["trial_id"]]
            if operation == SET_USER_ATTR:
                trial.user_attrs |= log["user_attr"]
            elif operation == SET_STATE:
                trial.state, (trial.value, *_) = State(log["state"]), log["values"] or [None]
            elif operation == SET_VALUE:
                self.reports[trial.study].append((trial.number, log["step"], log["intermediate_value"]))
        self._tallies.pop(trial.study, None)
        return f"{trial.study} trial {trial.number}"
