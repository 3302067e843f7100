"""The ledger of test openings.

An opening is one line, written before the first test image is read. Another line with the digests of the images follows
when they have been read.
"""

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

from search.trust import state_folder
from trainables.files import DAMAGED
from trainables.mistakes import Mistakes
from trainables.storage import full_disk_errors

logger = logging.getLogger(__name__)


# Test images are identified by their content: names and folders may change.

Fingerprint = tuple[str, ...]
"""Digests of a few images, which identify a class."""


@dataclass(frozen=True, kw_only=True)
class OpenedImages:
    """The ``digest`` of all images of a test set and the fingerprints of its classes."""

    digest: str
    classes: tuple[Fingerprint, ...]

    @cached_property
    def known(self) -> frozenset[str]:
        """The images in the fingerprints."""
        return frozenset(chain.from_iterable(self.classes))


def count_known(classes: Iterable[Fingerprint], images: frozenset[str]) -> int:
    """Count those of ``classes`` that contain one of ``images``."""
    return sum(not images.isdisjoint(fingerprint) for fingerprint in classes)


def images_in(store: Path) -> OpenedImages:
    """Identify the images of the store at ``store``, which contains exactly a test set.

    Raises:
        Mistakes: the store is damaged.
    """
    # Imports numpy, which commands that only print results do not need.
    from trainables.data.store.contents import content_digest, digests_by_class, fingerprints, read_contents

    by_class = digests_by_class(read_contents(store))
    return OpenedImages(digest=content_digest(by_class), classes=tuple(fingerprints(by_class)))


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set.

    ``test_digest`` is the digest of the class names, ``images`` the content of the classes, None until they are read.
    ``search`` is the search or campaign that opened it. ``selections`` maps each search that was scored to the digest
    of its frozen selection, ``configurations`` to the number of its configurations that were scored.
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
    """Return a phrase with the numbers of openings, searches and scored configurations.

    Searches are identified by their frozen selections: renaming or scoring one again does not count twice.
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


NAME = "test_openings.jsonl"

_Entry = Opening | tuple[str, OpenedImages]


class Ledger:
    """The openings by all searches of a user, in all runs folders.

    There are two copies, in the runs folder at ``path`` and in the user's state folder; their union is read. Only the
    first copy is required: if the state folder cannot be used, a warning is logged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def openings(self, test_digest: str | None = None) -> list[Opening]:
        """Return all openings, or those of test classes with these names, in order."""
        return [entry for entry in self._all() if test_digest in (None, entry.test_digest)]

    def of_selection(self, selection_digest: str) -> list[Opening]:
        """Return the openings that scored a frozen selection."""
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
        """Write an opening of the test set; it is on disk when this returns.

        Raises:
            DiskFull: there is no space; nothing is written.
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
        """Write the images that ``opening`` found, once for all its searches; return the opening with them.

        Raises:
            Mistakes: another search of the opening, or an earlier attempt, found different images.
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
        """Describe how often this test set was opened, and earlier openings of others that share classes with it."""
        entries = self._all()
        same = [entry for entry in entries if _is_same(entry, opening)]
        others = [entry for entry in _shared_before(entries, same[0]) if entry not in same]
        told = f"this test set: {count_openings(same)}"
        return f"{told}; {_overlap(opening, others)}" if others else told

    def before(self, opening: Opening) -> str | None:
        """Describe earlier openings that share classes with ``opening``; None if there were none."""
        earlier = _shared_before(self._all(), opening)
        return _overlap(opening, earlier) if earlier else None

    def sentence_by_names(self, test_digest: str) -> str:
        """Describe openings of test classes by their names only: their images are still sealed."""
        openings = self.openings(test_digest)
        return f"test sealed; classes of these names: {count_openings(openings)}" if openings else "test sealed"

    def opened_among(self, classes: Sequence[Fingerprint]) -> str | None:
        """Describe the openings of test sets that share images with ``classes``; None if there were none."""
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
                "The opening is recorded in %s only, since the user's state folder cannot be written (%s); searches in "
                "other runs folders will not see it.",
                self._path,
                error,
            )

    def _all(self) -> list[Opening]:
        """Return the openings of both files, in the order of their times."""
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
            logger.warning("The ledger in the user's state folder cannot be read (%s); it is ignored.", error)
            return []


def _is_same(entry: Opening, opening: Opening) -> bool:
    """Return True if two openings are of the same images, or of the same names until the images are read."""
    if opening.images is None:
        return entry.test_digest == opening.test_digest
    return entry.images is not None and entry.images.digest == opening.images.digest


def _shared_before(entries: Sequence[Opening], opening: Opening) -> list[Opening]:
    """Return those of ``entries`` before ``opening`` that share classes with it."""
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
            while left:  # a write to an almost full disk may be partial
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            file.truncate(end)  # half a line would be a damaged ledger
            raise


def _entries(path: Path) -> Iterator[_Entry]:
    """Yield the entries of a ledger: openings, and images with the id of their opening."""
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
