"""The interface of a data set."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from trainables.errors import counted, listed

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
    :mod:`trainables.data.items` names.
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
        from trainables.data.items import item_digest  # imports numpy

        return item_digest(self.read(key))


def is_utf8(name: object) -> bool:
    """Return True if ``name`` is text that can be written as UTF-8, unlike the names of some files."""
    try:
        return isinstance(name, str) and name.encode() is not None
    except UnicodeEncodeError:
        return False


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
    alike: dict[str, list[str]] = {}
    for name in names:
        words = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        alike.setdefault(re.sub(r"(?<!\d)0+(?=\d)", "", words), []).append(name)
    groups = [_quoted(group) for group in alike.values() if len(group) > 1]
    if not groups:
        return None
    return (
        f"{counted(len(groups), 'group')} of classes differ only in case, spaces, leading zeros or Unicode form: "
        f"{listed(groups, '; ', shown=5)}. If they are one class, give them one name: one may train and the other test."
    )


def _quoted(names: list[str]) -> str:
    """Quote names, escaped where they look the same."""
    look_same = len({unicodedata.normalize("NFC", name) for name in names}) < len(names)
    return ", ".join(map(ascii if look_same else repr, names))
