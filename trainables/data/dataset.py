"""The interface of a data set: named classes of images, read one at a time."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    import numpy as np


# Long lists in sentences, cut.

SHOWN = 20


def listed(names: Sequence[str], separator: str = ", ", shown: int = SHOWN) -> str:
    """The names one after the other; beyond those ``shown``, how many more there are.

    File names may hold line breaks and a terminal's commands, which are shown as Python writes them.
    """
    shown_names = [name if name.isprintable() else repr(name)[1:-1] for name in names[:shown]]
    rest = [f"and {len(names) - shown:,} more"] if len(names) > shown else []
    return separator.join([*shown_names, *rest])


# What a data set is: named classes of images, read one at a time.


class Dataset(ABC):
    """A data set: a frozen keyword-only dataclass whose fields are its options in the search file.

    The metadata of a field say what the option is ``about``.
    Options are validated where they are made: ``__post_init__`` raises ``Mistakes``, all sentences at once.
    ``summary`` says what it is, ``publisher`` where its owner publishes it, ``layout`` what ``root`` must look like.
    """

    summary: ClassVar[str]
    publisher: ClassVar[str]
    layout: ClassVar[str]

    @abstractmethod
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Class name → image keys, in the data set's own order. Names only: no image is opened."""

    @abstractmethod
    def identity(self) -> str:
        """Which data this is, wherever it lies. With the class names it tells data sets apart."""

    @abstractmethod
    def stamp(self, key: str) -> str:
        """A cheap mark that changes when the image does."""

    @abstractmethod
    def read(self, key: str) -> "np.ndarray":
        """The image as it looks: uint8, height × width × 3 (RGB). An unreadable one raises anything."""

    def damage(self, key: str) -> str | None:
        """What shows to be wrong with the image before it is decoded; None where nothing does, or nobody can tell.

        It is asked of test classes too, before they are opened: it must not decode a pixel. It may raise anything.
        """
        return None

    def superclasses(self) -> Mapping[str, str] | None:
        """Class name → the larger class that it belongs to; None where the data set does not group its classes."""
        return None

    def test_subsets(self) -> Mapping[str, tuple[str, ...]]:
        """Parts of the test classes that are scored by themselves too: a part's name → its classes.

        Parts may share classes. A metric on one is named as in ``recall_at_1-small``.
        """
        return {}

    def published_split(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The training and the test classes that the data set's authors named, if they did."""
        return None
