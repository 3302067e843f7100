"""The ledger of test openings.

A search writes a line when it begins. An opening is one line, written before the first test image is read. Another line
identifies the images when they have been read, and one for each search its scores when they are written.
"""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.records.ledger_file import Entry, ImageSet, LedgerFile
from search.trust import state_folder
from trainables.common.errors import Failure, InvalidInput, counted, listed
from trainables.common.files import digest_of, reading

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class OpenedImages:
    """The images of a test set: their ``digest``, and the ``file`` with all of them (:class:`ImageSet`)."""

    digest: str
    file: str
    classes: int
    images: int


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set, by a ``search`` or campaign.

    ``test_digest`` is that of the class names, ``images`` the content of the classes, None until they are read.
    ``selections`` maps each scored search to the digest of its frozen selection, ``configurations`` to the number of
    its scored configurations. ``studies`` has the digests of the final trainings, ``scores`` those of the scores by
    selection.
    """

    id: str
    test_digest: str
    search: str
    selections: Mapping[str, str]
    configurations: Mapping[str, int]
    studies: Mapping[str, str]
    time: str
    reason: str
    images: OpenedImages | None = None
    scores: Mapping[str, str] = field(default_factory=dict)

    @property
    def entry(self) -> dict[str, Any]:
        """The content of its first line, which does not change."""
        return {name: value for name, value in vars(self).items() if name not in ("images", "scores")}


def count_openings(openings: Iterable[Opening]) -> str:
    """Return a phrase with the numbers of openings, searches and scored configurations.

    Searches are identified by their frozen selections: renaming or scoring one again does not count twice.
    """
    found = list(openings)
    scored = {digest: entry.configurations.get(name, 0) for entry in found for name, digest in entry.selections.items()}
    openers = f"{counted(len(found), 'opening')} by {counted(len(scored), 'search', 'searches')}"
    return f"{openers}, {counted(sum(scored.values()), 'configuration')} scored"


NAME = "test_openings.jsonl"


class Ledger:
    """The openings by all searches of a user, in all runs folders.

    There are two files, in the runs folder at ``path`` and in the user's state folder; their union is read. If the
    state folder cannot be used, a warning is logged. Openings are in the order of the lines, not of their times. Before
    a line is written, the user's file gets the lines that only the other has, and the other those on its test sets and
    on openings that share images with them: a published runs folder does not show the rest. An opening that one file
    has before another counts as before it.
    """

    def __init__(self, path: Path) -> None:
        self._file = LedgerFile(path)

    def openings(self, test_digest: str | None = None) -> list[Opening]:
        """Return all openings, or those of test classes with these names, in order."""
        own, users = self._entries()
        return [entry for entry in _openings({**own, **users}) if test_digest in (None, entry.test_digest)]

    def of_selection(self, selection_digest: str) -> list[Opening]:
        """Return the openings that scored a frozen selection."""
        return [entry for entry in self.openings() if selection_digest in entry.selections.values()]

    def catch_up(self, about: Iterable[str] = ()) -> None:
        """Copy the lines that are missing in either file, also those ``about`` these openings, unless it fails."""
        own, users = self._entries()
        if own.keys() == users.keys():
            return
        try:
            self._write(about=about)
        except (OSError, Failure) as error:
            logger.warning("Openings elsewhere are not copied to %s (%s).", self._file.path, error)

    def begin(self, search: str, test_digests: Iterable[str]) -> None:
        """Write that a search or campaign begins, for each digest of class names."""
        begun = {"search": search, "time": _now()}
        self._write(*({"begun": uuid.uuid4().hex, **begun, "test_digest": digest} for digest in test_digests))

    def open(self, **content: Any) -> Opening:
        """Write an opening of the test set with the ``content`` of an :class:`Opening`; it is on disk afterwards.

        Raises:
            DiskFull: there is no space; an opening that is in the user's file already is resumed from there.
        """
        opening = Opening(id=uuid.uuid4().hex, time=_now(), **content)
        self._write(opening.entry)
        return opening

    def read(self, opening: Opening, images: ImageSet) -> Opening:
        """Write the images that ``opening`` found, once for all its searches; return the opening with them.

        Raises:
            InvalidInput: another search of the opening, or an earlier attempt, found different images.
        """
        known = next((entry.images for entry in self.openings() if entry.id == opening.id), None)
        if known is None:
            content, classes = images.to_bytes(), len(images.sizes_C)
            known = OpenedImages(digest=images.digest, file=digest_of(content), classes=classes, images=len(images))
            about = [entry.id for entry, _ in self.sharing(images, self.openings())]
            self._write({"read": opening.id, **asdict(known)}, images=content, about=about)
        elif known.digest != images.digest:
            raise InvalidInput(
                f"The test items are not those that {opening.search} opened at {opening.time}; put them back, or "
                "search under a new name."
            )
        return replace(opening, images=known)

    def score(self, opening: Opening, selection_digest: str, scores_digest: str) -> None:
        """Write that the search with this selection has its scores; after that the opening is not resumed for it."""
        self._write({"scored": opening.id, "selection": selection_digest, "scores": scores_digest, "time": _now()})

    # Sentences

    def sentence(self, opening: Opening) -> str:
        """Describe how often this test set was opened, and earlier openings of others that share images with it."""
        same = [entry for entry in self.openings() if _is_same(entry, opening)]
        others = [entry for entry in self._before(same[0]) if entry not in same]
        unopened = self._unopened(opening.test_digest, 1)
        overlap = filter(None, [self._overlap(opening, others)])
        return "; ".join([f"this test set: {count_openings(same)}", *unopened, *overlap])

    def before(self, opening: Opening) -> str | None:
        """Describe earlier openings that share images with ``opening``; None if there were none."""
        return self._overlap(opening, self._before(opening))

    def earlier(self, opening: Opening, selection_digest: str) -> int:
        """Count the openings with images of ``opening`` before the first one for this selection."""
        first, *_ = (*self.of_selection(selection_digest), opening)
        return sum(self._overlap(opening, [entry]) is not None for entry in self._before(first))

    def sentence_by_names(self, test_digest: str) -> str:
        """Describe openings of test classes by their names only: their images are still sealed."""
        openings = self.openings(test_digest)
        opened = [f"classes of these names: {count_openings(openings)}"] if openings else []
        return "; ".join(["test sealed", *opened, *self._unopened(test_digest, 2)])

    def _unopened(self, test_digest: str, least: int) -> Iterator[str]:
        """Yield the number of searches that began on test classes of these names and opened none, if ``least`` did.

        A campaign is one search.
        """
        entries = {key: entry for of in self._entries() for key, entry in of.items()}
        openings = self.openings(test_digest)
        opened = Counter(search for search, *_ in {(entry.search, *entry.selections.values()) for entry in openings})
        with reading("The ledger of test openings"):
            begun = [entry for entry in entries.values() if "begun" in entry and entry["test_digest"] == test_digest]
            unopened = (Counter(entry["search"] for entry in begun) - opened).total()
        if unopened >= least:
            yield f"{counted(unopened, 'search', 'searches')} on classes of these names opened no test"

    def opened_among_training(self, images: ImageSet, openings: Iterable[Opening]) -> str | None:
        """Return the warning about training ``images`` that one of ``openings`` had; None if none had any."""
        return self._opened(images, openings, "training on items of an opened test set: {} classes {}")

    def sharing(self, images: ImageSet, openings: Iterable[Opening]) -> Iterator[tuple[Opening, NDArray[np.bool_]]]:
        """Yield each opening that has some of ``images``, and for each image if it has it; a set is loaded once."""
        loaded = cache(self.image_set)
        for entry, opened in [(entry, entry.images) for entry in openings if entry.images]:
            known_N = images.known_images(loaded(opened))
            if known_N.any():
                yield entry, known_N

    def _overlap(self, opening: Opening, others: Sequence[Opening]) -> str | None:
        """Describe which images of ``opening`` some of ``others`` had; None if there are none."""
        if opening.images is None or not any(entry.images for entry in others):
            return None
        images = self.image_set(opening.images)
        return self._opened(images, others, "{} of these classes were opened before {}")

    def _opened(self, images: ImageSet, others: Iterable[Opening], sentence: str) -> str | None:
        """Fill in how many of the classes of ``images`` some of ``others`` had, and which these are; None if none."""
        openings, known = [], np.zeros(len(images), dtype=bool)
        for entry, known_N in self.sharing(images, others):
            openings.append(entry)
            known |= known_N
        if not openings:
            return None
        names = dict.fromkeys(f"{entry.search} on {entry.time[:10]}" for entry in openings)
        classes_N = np.repeat(np.arange(len(images.sizes_C)), images.sizes_C.astype(np.int64))
        count = f"{len(np.unique(classes_N[known]))} of {len(images.sizes_C)}"
        return sentence.format(count, f"({count_openings(openings)}: {listed([*names], shown=5)})")

    # The files

    def _users(self) -> LedgerFile:
        return LedgerFile(state_folder() / NAME)

    def lacking(self, openings: Collection[str]) -> dict[Path, int]:
        """Return how many lines on ``openings`` each of the two files lacks that the other has.

        The user's file may have no line on an opening by another user or on another machine.
        """
        own, users = self._entries()
        files = [(self._file.path, own, users, {*openings})]
        if users:
            known = set[str]().union(*map(_subjects, users.values()))
            files.append((self._users().path, users, own, known.intersection(openings)))
        return {
            path: sum(not about.isdisjoint(_subjects(entry)) for entry in _missing(others, entries))
            for path, entries, others, about in files
        }

    def broken_links(self) -> Iterator[str]:
        """Yield a sentence for each line of the two files that was changed, removed or moved."""
        yield from self._file.broken_links()
        with _without_state_folder("read", "it is ignored"):
            yield from self._users().broken_links()

    def image_set(self, opened: OpenedImages) -> ImageSet:
        """Load the images of an opened test set."""
        content = self._file.images(opened.file)
        if content is None:
            with suppress(OSError, RuntimeError):  # no state folder
                content = self._users().images(opened.file)
        if content is None:
            raise InvalidInput(
                f"The images of an opened test set, {self._file.path_of_images(opened.file)}, are missing or damaged; "
                "restore the file from a copy."
            )
        return ImageSet.from_bytes(content)

    def _before(self, opening: Opening) -> list[Opening]:
        """Return the openings that one of the files has before the line of the images of ``opening``."""
        own, users = self._entries()
        orders = ({**own, **users}, {**users, **own})
        until = [takewhile(lambda entry: entry.get("read") != opening.id, order.values()) for order in orders]
        earlier = {entry.get("id") for order in until for entry in order} - {opening.id}
        return [entry for entry in _openings(orders[0]) if entry.id in earlier]

    def _entries(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        users: dict[str, Entry] = {}
        with _without_state_folder("read", "it is ignored"):
            users = self._users().entries()
        return self._file.entries(), users

    def _write(self, *new: Entry, images: bytes | None = None, about: Iterable[str] = ()) -> None:
        """Append the lines that either file lacks and ``new`` to both, to the user's file first.

        So a process that is killed in between leaves a line that all runs folders read. ``new`` may name a file of
        ``images``. Of the user's lines only those on test sets of the runs folder and on openings ``about`` are copied.
        """
        files, given = [self._file], {digest_of(images): images} if images else {}

        def content_of(name: str) -> bytes | None:
            return given.get(name) or next(filter(None, (file.images(name) for file in files)), None)

        with self._file.locked():
            own, theirs = self._file.entries(), dict[str, Entry]()
            unseen = f"searches in other runs folders do not see the openings in {self._file.path}"
            with _without_state_folder("written", unseen):
                files.append(users := self._users())
                with users.locked():
                    theirs = users.entries()
                    users.append([*_missing(own, theirs), *new], content_of)
            subjects = set(about).union(*map(_subjects, (*own.values(), *new)))
            self._file.append([*_missing(_about(subjects, theirs), own), *new], content_of)


@contextmanager
def _without_state_folder(what: str, then: str) -> Iterator[None]:
    """Log a warning if the ledger in the user's state folder cannot be read or written."""
    try:
        yield
    except (OSError, RuntimeError, InvalidInput) as error:
        logger.warning("The ledger in the user's state folder cannot be %s (%s); %s.", what, error, then)


def _subjects(entry: Entry) -> set[str]:
    """Return what an entry is about: the id of an opening, and the digests of a test set's names and images."""
    return {str(entry[key]) for key in ("id", "read", "scored", "test_digest", "digest") if key in entry}


def _about(subjects: set[str], entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return the ``entries`` about these subjects, or about the test set or opening of another one of them."""
    of = {digest: _subjects(entry) for digest, entry in entries.items()}
    while more := [found for found in of.values() if found & subjects and found - subjects]:
        subjects = subjects.union(*more)
    return {digest: entry for digest, entry in entries.items() if of[digest] & subjects}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _missing(entries: Mapping[str, Entry], there: Mapping[str, Entry]) -> list[Entry]:
    return [entry for digest, entry in entries.items() if digest not in there]


def _openings(entries: Mapping[str, Entry]) -> list[Opening]:
    """Return the openings in the order of the ``entries``, with their images and scores."""
    openings: dict[str, Opening] = {}
    images: dict[str, OpenedImages] = {}
    scores: dict[str, dict[str, str]] = {}
    for digest, entry in entries.items():
        with reading(f"The entry {digest[:12]} of the ledger of test openings"):
            if "begun" in entry:
                continue
            if "read" in entry:
                found = {column.name: entry[column.name] for column in fields(OpenedImages)}
                images.setdefault(entry["read"], OpenedImages(**found))
            elif "scored" in entry:
                scores.setdefault(entry["scored"], {}).setdefault(entry["selection"], entry["scores"])
            else:
                openings.setdefault(entry["id"], Opening(**entry))
    return [replace(of, images=images.get(name), scores=scores.get(name, {})) for name, of in openings.items()]


def _is_same(entry: Opening, opening: Opening) -> bool:
    """Return True if two openings are of the same images, or of the same names until the images are read."""
    if opening.images is None:
        return entry.test_digest == opening.test_digest
    return entry.images is not None and entry.images.digest == opening.images.digest
