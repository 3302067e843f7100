"""The images of an opened test set by their content, whatever its classes are called and however they are read."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

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
    from trainables.data.store.contents import read_contents
    from trainables.data.store.image_digests import content_digest, digests_by_class, fingerprints

    by_class = digests_by_class(read_contents(store))
    return OpenedImages(digest=content_digest(by_class), classes=tuple(fingerprints(by_class)))
