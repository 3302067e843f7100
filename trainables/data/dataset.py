"""The interface of a data set, and the check of all that it lists."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from trainables.common.errors import InvalidInput, counted, listed, raise_if_any, suggestion

if TYPE_CHECKING:
    import numpy as np


class Dataset(ABC):
    """Named classes of images, or of vectors of features, that are read one at a time.

    A data set is a frozen keyword-only dataclass. Its fields are its options in the search file; the metadata entry
    ``about`` of a field describes the option. ``__post_init__`` validates the options and raises ``InvalidInput`` with
    all problems at once. ``summary`` describes the data set in a line, ``publisher`` is the source of its files, and
    ``layout`` shows the files expected below ``root``.
    """

    summary: ClassVar[str]
    publisher: ClassVar[str]
    layout: ClassVar[str]

    @abstractmethod
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Map class names to image keys, in the data set's own order. No image is opened."""

    @abstractmethod
    def identity(self) -> str:
        """Identify the data independently of its location. Together with the class names it distinguishes data sets."""

    @abstractmethod
    def stamp(self, key: str) -> str:
        """Return a cheap fingerprint that changes when the image does, such as its size and modification time."""

    @abstractmethod
    def read(self, key: str) -> "np.ndarray":
        """Return the image as displayed: uint8, height × width × 3 (RGB). May raise anything if it is unreadable.

        A data set of vectors returns float32 of as many numbers as :meth:`features` says.
        """

    def features(self) -> int | None:
        """Return the number of features of an item if items are vectors; None if they are images."""
        return None

    @property
    def noun(self) -> str:
        """Return what items are called, in the plural: images, vectors or items."""
        return "images" if self.features() is None else "vectors"

    def picture(self, key: str) -> "np.ndarray | None":
        """Return an image, as an RGB array, that shows an item which is no image; None if there is none."""
        return None

    def damage(self, key: str) -> str | None:
        """Describe damage that is visible without decoding the image; None if there is none or it cannot be checked.

        This is also called on test classes before the test is opened, so it must not decode a pixel. May raise
        anything.
        """
        return None

    def superclasses(self) -> Mapping[str, str] | None:
        """Map class names to the superclass of each; None if the data set does not group its classes."""
        return None

    def test_subsets(self) -> Mapping[str, tuple[str, ...]]:
        """Map names of subsets of the test classes, which are also scored separately, to their classes.

        Subsets may overlap. A metric of a subset is named as in ``recall_at_1-small``.
        """
        return {}

    def groups(self) -> Mapping[str, str]:
        """Map image keys to the group of each, such as a product, a shop or a session; empty without groups.

        A group never crosses the split: classes with images of one group train, validate or test together.
        """
        return {}

    def parts(self) -> Mapping[str, str]:
        """Map image keys to their official part, ``query`` or ``gallery``.

        Queries are ranked against the gallery only. An image without a part is a query, and in the gallery of others.
        """
        return {}

    def cameras(self) -> Mapping[str, str]:
        """Map image keys to the camera of each if a query ignores the images of its class by its own camera."""
        return {}

    def left_out(self) -> str | None:
        """Describe in a sentence what lies beside the items and is none of them; None if there is nothing."""
        return None

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the training and test classes published by the data set's authors, or None."""
        return None


class ItemDataset(Dataset):
    """Named classes of items that are neither images nor vectors: texts, paths, arrays, records.

    For a user-defined training (``trainable`` in a search file). ``read`` returns an item of a kind that
    :mod:`trainables.data.store.contents` names.
    """

    publisher: ClassVar[str] = "yourself"
    layout: ClassVar[str] = ""

    @property
    def noun(self) -> str:
        return "items"

    @abstractmethod
    def read(self, key: str) -> Any:
        """Return the item ``key``; the same one each time."""

    def stamp(self, key: str) -> str:
        """Return the digest of the item. It reads the item; replace it where that is slow."""
        from trainables.data.store.contents import item_digest  # imports numpy

        return item_digest(self.read(key))


def is_utf8(name: object) -> bool:
    """Return True if ``name`` is text that can be written as UTF-8, unlike the names of some files."""
    return isinstance(name, str) and name.encode(errors="replace").decode() == name


Name = TypeVar("Name", bound=Hashable)


def grouped(pairs: Iterable[tuple[Name, str]]) -> dict[Name, tuple[str, ...]]:
    """Group pairs of a name, such as a class's, and an image key by name, in order of first appearance."""
    keys_of: dict[Name, list[str]] = {}
    for name, key in pairs:
        keys_of.setdefault(name, []).append(key)
    return {name: tuple(keys) for name, keys in keys_of.items()}


def sorted_classes(names: Iterable[str]) -> list[str]:
    """Sort the names of classes, by size if all are whole numbers."""
    found = sorted(names)
    return sorted(found, key=int) if all(re.fullmatch(r"-?[0-9]{1,4000}", name) for name in found) else found


def similar_names(names: Iterable[str]) -> str | None:
    """Return a sentence on classes whose names differ in their writing only, of which one may train and one test.

    >>> similar_names(["Shoe", "shoe ", "01", "1", "bag"])
    "2 groups of classes differ only in case, spaces, leading zeros or Unicode form: 'Shoe', 'shoe '; '01', '1'. If \
they are one class, give them one name: one may train and the other test."
    """
    words = {name: " ".join(unicodedata.normalize("NFKC", name).casefold().split()) for name in names}
    alike = grouped((re.sub(r"(?<!\d)0+(?=\d)", "", text), name) for name, text in words.items())
    groups = []
    for group in alike.values():
        look_same = len({unicodedata.normalize("NFC", name) for name in group}) < len(group)
        groups += [", ".join(map(ascii if look_same else repr, group))] if len(group) > 1 else []
    if not groups:
        return None
    return (
        f"{counted(len(groups), 'group')} of classes differ only in case, spaces, leading zeros or Unicode form: "
        f"{listed(groups, '; ', shown=5)}. If they are one class, give them one name: one may train and the other test."
    )


PARTS = TRAIN, QUERY, GALLERY, DISTRACTOR = ("train", "query", "gallery", "distractor")
"""The official parts of a data set; a distractor is in the gallery, of a class without queries."""


def part_mistakes(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield what is wrong with the parts of items, given with their classes; an empty part is none."""
    found = {part for _, part in rows}
    if wrong := [part for _, part in rows if part and part not in PARTS]:
        yield (
            f"{counted(len(wrong), 'row')} with the unknown part {listed(list(dict.fromkeys(wrong)), shown=3)}"
            f"{suggestion(wrong[0], PARTS)}; a part is {', '.join(PARTS)}."
        )
        return
    for part, other, why in (
        (TRAIN, {QUERY, GALLERY, DISTRACTOR, ""}, "a class trains or is tested"),
        (DISTRACTOR, {QUERY}, "a distractor is of a class without queries"),
    ):
        if both := [name for name, parts in grouped(rows).items() if part in parts and not other.isdisjoint(parts)]:
            with_other = f"{counted(len(both), 'class', 'classes')} with rows of part {part} and of another"
            yield f"{with_other}: {listed(both, shown=3)}; {why}."
    if found - {""} and (lacking := {QUERY, GALLERY} - found):
        yield f"no row has the part {' or '.join(sorted(lacking))}; queries are ranked against the gallery: mark both."
    if DISTRACTOR in found and TRAIN not in found:
        yield f"the part {DISTRACTOR} needs the part {TRAIN} too, else distractors may train; mark the training rows."


class ListedDataset(Dataset):
    """Items that a file lists with their classes, and maybe with a group and an official part of each."""

    @abstractmethod
    def column(self, name: str) -> dict[str, str]:
        """Map image keys to the entries of a column of the file, ``group`` or ``part``; empty without it."""

    def groups(self) -> dict[str, str]:
        return self.column("group")

    def parts(self) -> dict[str, str]:
        official = {key: part for key, part in self.column("part").items() if part not in (TRAIN, "")}
        return {key: GALLERY if part == DISTRACTOR else part for key, part in official.items()}

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Return the classes that train and those that are tested; None without the part ``train``."""
        classes, parts = self.classes(), self.column("part")
        train = {name: None for name, keys in classes.items() if any(parts.get(key) == TRAIN for key in keys)}
        return (tuple(train), tuple(name for name in classes if name not in train)) if train else None


def check_listing(dataset: Dataset, classes: Mapping[str, Sequence[str]]) -> None:
    """Check, without opening an image, that a data set lists each image once, by names that every file can hold.

    ``classes`` are those of the data set, whose folder may be slow to list. Groups, parts, cameras, superclasses and
    subsets have to be of these images and classes.
    """
    if loose := [f"{name} ({type(of).__name__})" for name, of in classes.items() if not isinstance(of, tuple | list)]:
        what = f"{counted(len(loose), 'class', 'classes')} whose images are in no tuple or list"
        raise InvalidInput(f"{what}: {listed(loose, shown=3)}. Give a tuple of keys.")
    counts = Counter(key for keys in classes.values() for key in keys)
    parts, cameras, superclasses = dataset.parts(), dataset.cameras(), dataset.superclasses()
    of_subsets = [name for names in dataset.test_subsets().values() for name in names]
    found = {
        "names that are no text in UTF-8": [name for name in (*classes, *counts) if not is_utf8(name)],
        "images that are listed twice": [key for key, count in counts.items() if count > 1],
        "images of groups() that are not in classes()": dataset.groups().keys() - counts.keys(),
        "images of parts() that are not in classes()": parts.keys() - counts.keys(),
        f"parts that are neither {QUERY} nor {GALLERY}": set(parts.values()) - {QUERY, GALLERY},
        "images of cameras() that are not in classes()": cameras.keys() - counts.keys(),
        "images without a camera": counts.keys() - cameras.keys() if cameras else (),
        "classes without a superclass": [] if superclasses is None else classes.keys() - superclasses.keys(),
        "classes of test_subsets() that are not in classes()": set(of_subsets) - classes.keys(),
    }
    wrong = {what: listed(sorted(map(ascii, names)), shown=3) for what, names in found.items() if names}
    raise_if_any([f"The data set lists {what} ({len(found[what]):,}): {wrong[what]}. Correct it." for what in wrong])


def joined_classes(classes: Mapping[str, Sequence[str]], groups: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the connected components of two or more classes, which share groups; ``groups`` are those of images.

    >>> joined_classes({"a": ["1"], "b": ["2"], "c": ["3"]}, {"1": "shop", "3": "shop"})
    (('a', 'c'),)
    """
    component_of = {name: [name] for name in classes}
    first_of: dict[str, str] = {}  # the first class of each group
    for name, keys in classes.items():
        for group in {groups[key] for key in keys if key in groups}:
            component, other = component_of[name], component_of[first_of.setdefault(group, name)]
            if other is not component:
                other += component
                component_of |= dict.fromkeys(component, other)
    components = {id(component): component for component in component_of.values() if len(component) > 1}
    position = {name: number for number, name in enumerate(classes)}
    return tuple(tuple(sorted(component, key=position.__getitem__)) for component in components.values())
