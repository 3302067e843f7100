"""The ledger of test openings: one line an opening, written before the first test image is read."""

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set: which classes (by digest), by which search and selection, when and why."""

    id: str
    test_digest: str
    search: str
    selection_digest: str
    time: str
    reason: str


class Ledger:
    """The openings of all searches of a runs folder, whatever the searches are called."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def openings(self, test_digest: str | None = None) -> list[Opening]:
        """All openings, or those of one test set, in order."""
        return [entry for entry in self._read() if test_digest in (None, entry.test_digest)]

    def _read(self) -> Iterator[Opening]:
        if not self._path.exists():
            return
        for line in self._path.read_text().splitlines():
            yield Opening(**json.loads(line))

    def of_selection(self, selection_digest: str) -> list[Opening]:
        """The openings for one frozen selection."""
        return [entry for entry in self._read() if entry.selection_digest == selection_digest]

    def open(self, *, test_digest: str, search: str, selection_digest: str, reason: str) -> Opening:
        """Write down that the test set is being opened; on disk when this returns."""
        opening = Opening(
            id=uuid.uuid4().hex,
            test_digest=test_digest,
            search=search,
            selection_digest=selection_digest,
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            reason=reason,
        )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(f"{self._path}.lock"), self._path.open("a") as file:
            file.write(json.dumps(asdict(opening)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return opening

    def sentence(self, test_digest: str) -> str:
        """How often this test set was opened, and by how many searches."""
        openings = self.openings(test_digest)
        searches = {entry.search for entry in openings}
        return (
            f"this test set: {len(openings)} opening{'s' * (len(openings) != 1)} "
            f"by {len(searches)} search{'es' * (len(searches) != 1)}"
        )
