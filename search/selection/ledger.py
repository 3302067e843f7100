"""The ledger of test openings: one line before the first test image is read, one with its end."""

import json
import logging
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import filelock

from trainables.files import DAMAGED
from trainables.mistakes import Mistakes
from trainables.storage import full_disk_errors

# The folder of what a user's searches remember whatever their runs folders: the ledger of test openings.


def state_folder() -> Path:
    """``$XDG_STATE_HOME/holdout``, or ``~/.local/state/holdout``.

    Raises:
        RuntimeError: the user has no home.
    """
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "holdout"


# The images of an opened test set by their content, whatever its classes are called and however they are read.

Fingerprint = tuple[str, ...]
"""A few images of a class, by which it is known again."""


@dataclass(frozen=True, kw_only=True)
class OpenedImages:
    """The ``digest`` of all images of a test set, and the fingerprint of each of its classes."""

    digest: str
    classes: tuple[Fingerprint, ...]

    @cached_property
    def known(self) -> frozenset[str]:
        """All images of the fingerprints."""
        return frozenset(chain.from_iterable(self.classes))


def count_known(classes: Iterable[Fingerprint], images: frozenset[str]) -> int:
    """How many of ``classes`` have one of ``images``."""
    return sum(not images.isdisjoint(fingerprint) for fingerprint in classes)


def images_in(store: Path) -> OpenedImages:
    """The images of the store at ``store``, which holds a test set and nothing else.

    Raises:
        Mistakes: the store is damaged.
    """
    # Here, since they read with numpy, and who prints a result does not.
    from trainables.data.store.contents import content_digest, digests_by_class, fingerprints, read_contents

    by_class = digests_by_class(read_contents(store))
    return OpenedImages(digest=content_digest(by_class), classes=tuple(fingerprints(by_class)))


# One opening of a test set, and what several come to.


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set: whose, when and why.

    ``test_digest`` is that of the classes' names, and ``images`` what they turned out to hold: None until they were
    read. ``search`` is who opened, a search or a campaign; ``selections`` maps each search that was scored to the
    digest of its frozen selection, and ``configurations`` to how many of its configurations were scored.
    """

    id: str
    test_digest: str
    search: str
    selections: Mapping[str, str]
    configurations: Mapping[str, int]
    time: str
    reason: str
    images: OpenedImages | None = None


def count_openings(openings: Iterable[Opening]) -> str:
    """How many openings there are, by how many searches, of how many configurations.

    A search is its frozen selection, whatever it is called; to score it once more shows no further configurations.
    """
    found = list(openings)
    scored = {digest: entry.configurations.get(name, 0) for entry in found for name, digest in entry.selections.items()}
    return ", ".join(
        (
            f"{_counted(len(found), 'opening')} by {_counted(len(scored), 'search', 'es')}",
            f"{_counted(sum(scored.values()), 'configuration')} scored",
        )
    )


def _counted(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{plural * (count != 1)}"


# The ledger of test openings: one line an opening, written before the first test image is read, and one with its
# images when they were.

logger = logging.getLogger(__name__)

NAME = "test_openings.jsonl"

_Entry = Opening | tuple[str, OpenedImages]


class Ledger:
    """The openings of all of a user's searches, whatever the searches and their runs folders are called.

    It lies in the runs folder, at ``path``, and in the user's state folder, and what one of the two has lost is in the
    other. Only the first is needed: a state folder that cannot be used is a warning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def openings(self, test_digest: str | None = None) -> list[Opening]:
        """All openings, or those of test classes of these names, in order."""
        return [entry for entry in self._all() if test_digest in (None, entry.test_digest)]

    def of_selection(self, selection_digest: str) -> list[Opening]:
        """The openings for one frozen selection, alone or among others."""
        return [entry for entry in self._all() if selection_digest in entry.selections.values()]

    def open(
        self,
        *,
        test_digest: str,
        search: str,
        selections: Mapping[str, str],
        configurations: Mapping[str, int],
        reason: str,
    ) -> Opening:
        """Write down that the test set is being opened; on disk when this returns.

        Raises:
            DiskFull: there is no space for it, and nothing is written down.
        """
        opening = Opening(
            id=uuid.uuid4().hex,
            test_digest=test_digest,
            search=search,
            selections=dict(selections),
            configurations=dict(configurations),
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            reason=reason,
        )
        content = asdict(opening)
        del content["images"]
        self._append(content)
        return opening

    def read(self, opening: Opening, images: OpenedImages) -> Opening:
        """Write down which images ``opening`` found, once for all its searches; gives it with them.

        Raises:
            Mistakes: another search, or an attempt before, found others.
        """
        known = next((entry.images for entry in self._all() if entry.id == opening.id), None)
        if known is None:
            self._append({"read": opening.id, **asdict(images)})
        elif known.digest != images.digest:
            raise Mistakes(
                f"The test images are not those that {opening.search} opened at {opening.time}; put them back, or "
                "search under a new name."
            )
        return replace(opening, images=images)

    def sentence(self, opening: Opening) -> str:
        """How often the test set of ``opening`` was opened, and how often others with some of its classes before."""
        entries = self._all()
        same = [entry for entry in entries if _is_same(entry, opening)]
        others = [entry for entry in _shared_before(entries, same[0]) if entry not in same]
        told = f"this test set: {count_openings(same)}"
        return f"{told}; {_overlap(opening, others)}" if others else told

    def before(self, opening: Opening) -> str | None:
        """How many of the classes of ``opening`` were opened before it, and by whom; None where none was."""
        earlier = _shared_before(self._all(), opening)
        return _overlap(opening, earlier) if earlier else None

    def sentence_by_names(self, test_digest: str) -> str:
        """What can be told of test classes whose images nobody may read yet: their names."""
        openings = self.openings(test_digest)
        return f"test sealed; classes of these names: {count_openings(openings)}" if openings else "test sealed"

    def opened_among(self, classes: Sequence[Fingerprint]) -> str | None:
        """How many of ``classes`` have images of a test set that was opened, and by whom; None where none has."""
        overlapping = [entry for entry in self._all() if entry.images and count_known(classes, entry.images.known)]
        if not overlapping:
            return None
        return f"{_known(classes, overlapping)} of {len(classes)} classes {_by(overlapping)}"

    def _append(self, content: Mapping[str, Any]) -> None:
        line = json.dumps(content) + "\n"
        _append(self._path, line)
        try:
            _append(state_folder() / NAME, line)
        except (OSError, RuntimeError) as error:
            logger.warning(
                "The opening stands in %s alone, since the user's state folder cannot be written (%s): searches in "
                "other runs folders will not know of it.",
                self._path,
                error,
            )

    def _all(self) -> list[Opening]:
        """The openings of both files, in the order of their times."""
        openings: dict[str, Opening] = {}
        images: dict[str, OpenedImages] = {}
        for entry in (*self._of_the_user(), *_entries(self._path)):
            if isinstance(entry, Opening):
                openings.setdefault(entry.id, entry)
            else:
                images.setdefault(*entry)
        found = [replace(entry, images=images.get(entry.id)) for entry in openings.values()]
        return sorted(found, key=lambda entry: entry.time)

    def _of_the_user(self) -> list[_Entry]:
        try:
            return list(_entries(state_folder() / NAME))
        except (OSError, RuntimeError, Mistakes) as error:
            logger.warning("The ledger in the user's state folder cannot be read (%s); it is left aside.", error)
            return []


def _is_same(entry: Opening, opening: Opening) -> bool:
    """Whether two openings are of one test set: by its images, or by its names while these were not read."""
    if opening.images is None:
        return entry.test_digest == opening.test_digest
    return entry.images is not None and entry.images.digest == opening.images.digest


def _shared_before(entries: Sequence[Opening], opening: Opening) -> list[Opening]:
    """Those of ``entries`` that came before ``opening`` and share some of its classes."""
    if opening.images is None:
        return []
    earlier = takewhile(lambda entry: entry.id != opening.id, entries)
    return [entry for entry in earlier if entry.images and count_known(opening.images.classes, entry.images.known)]


def _overlap(opening: Opening, others: Sequence[Opening]) -> str:
    assert opening.images is not None
    classes = opening.images.classes
    return f"{_known(classes, others)} of {len(classes)} of these classes were opened before {_by(others)}"


def _known(classes: Sequence[Fingerprint], openings: Iterable[Opening]) -> int:
    return count_known(classes, frozenset().union(*(entry.images.known for entry in openings if entry.images)))


def _by(openings: Sequence[Opening]) -> str:
    return f"({count_openings(openings)})"


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with full_disk_errors(path), filelock.FileLock(f"{path}.lock"), path.open("ab", buffering=0) as file:
        end = file.tell()
        try:
            left = memoryview(line.encode())
            while left:  # of a disk that is nearly full only the next byte says so
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)  # half a line would be a damaged ledger
            raise


def _entries(path: Path) -> Iterator[_Entry]:
    """Each line of a ledger: an opening, or the images that one of a name found."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            content = json.loads(line)
            if identity := content.get("read"):
                classes = tuple(map(tuple, content["classes"]))
                yield identity, OpenedImages(digest=content["digest"], classes=classes)
            else:
                yield Opening(**content)
        except DAMAGED as error:
            raise Mistakes(
                f"Line {number} of the ledger of test openings, {path}, is damaged ({error}); restore it."
            ) from error
