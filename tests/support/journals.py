"""Journals of studies as the tests read and change them, without the product's code."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

CREATE_STUDY, CREATE_TRIAL, SET_STATE, SET_VALUE = 0, 4, 6, 7
"""Optuna's codes of some operations."""

Operation = dict[str, Any]


def operations(path: Path) -> list[Operation]:
    """Return the operations in a journal, as Optuna reads them; none before it exists."""
    return list(JournalFileBackend(str(path)).read_logs(0)) if path.exists() else []


def trials_in(path: Path, study: str) -> list[FrozenTrial]:
    """Return the trials of a study, as Optuna reads them; none before it exists."""
    if not path.exists():
        return []
    try:
        return optuna.load_study(study_name=study, storage=JournalStorage(JournalFileBackend(str(path)))).trials
    except KeyError:
        return []


def epochs_in(trial: FrozenTrial) -> list[dict[str, Any]]:
    return [trial.user_attrs[key] for key in sorted(trial.user_attrs) if key.startswith("epoch:")]


def with_checksums(changed: Iterable[Operation]) -> bytes:
    """Return the content of a journal whose checksums match its operations."""
    content, checksum = b"", 0
    for operation in changed:
        left = operation.get("left", 0)
        plain = {key: value for key, value in operation.items() if key not in ("left", "crc")}
        line = json.dumps({**plain, "left": left}, separators=(",", ":")).encode()[:-1]
        checksum = zlib.crc32(line, checksum)
        content += b'%s,"crc":%d}\n' % (line, checksum)
    return content


@contextmanager
def rewritten(path: Path) -> Iterator[list[Operation]]:
    """Yield the operations in a journal to be changed, and write them with matching checksums."""
    found = operations(path)
    before = repr(found)
    yield found
    assert repr(found) != before
    path.unlink()  # it may be a hard link
    path.write_bytes(with_checksums(found))


def rewrite(path: Path, change: Callable[[list[Operation]], object]) -> None:
    with rewritten(path) as found:
        change(found)


def of_trial(found: list[Operation], study: str, number: int) -> list[Operation]:
    """Return the operations of a trial, its creation first."""
    names = [operation["study_name"] for operation in found if operation["op_code"] == CREATE_STUDY]
    created = [operation for operation in found if operation["op_code"] == CREATE_TRIAL]
    trial = [operation for operation in created if names[operation["study_id"]] == study][number]
    key = next(key for key, operation in enumerate(created) if operation is trial)
    return [trial, *(operation for operation in found if operation.get("trial_id") == key)]


def drop_trial(found: list[Operation], study: str, number: int) -> None:
    """Remove a trial, so that the later ones of the journal have lower keys."""
    dropped = of_trial(found, study, number)
    key = [operation for operation in found if operation["op_code"] == CREATE_TRIAL].index(dropped[0])
    found[:] = [operation for operation in found if all(operation is not entry for entry in dropped)]
    for operation in found:
        if operation.get("trial_id", -1) > key:
            operation["trial_id"] -= 1


def without_openings(found: list[Operation]) -> None:
    noted = [entry for entry in found if "openings" in entry.get("user_attr", {})]
    assert noted
    for entry in noted:
        found.remove(entry)
