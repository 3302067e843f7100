"""The ledger of test openings: one line an opening, written before the first test image is read."""

import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import filelock


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set: which classes (by digest), by whom, when and why.

    ``search`` is who opened, a search or a campaign; ``selections`` maps each search that was scored to the digest of
    its frozen selection.
    """

    id: str
    test_digest: str
    search: str
    selections: Mapping[str, str]
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
        """The openings for one frozen selection, alone or among others."""
        return [entry for entry in self._read() if selection_digest in entry.selections.values()]

    def open(self, *, test_digest: str, search: str, selections: Mapping[str, str], reason: str) -> Opening:
        """Write down that the test set is being opened; on disk when this returns."""
        opening = Opening(
            id=uuid.uuid4().hex,
            test_digest=test_digest,
            search=search,
            selections=dict(selections),
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
        """How often this test set was opened, and how many searches were scored on it."""
        openings = self.openings(test_digest)
        searches = {search for entry in openings for search in entry.selections}
        return (
            f"this test set: {len(openings)} opening{'s' * (len(openings) != 1)} "
            f"by {len(searches)} search{'es' * (len(searches) != 1)}"
        )
