"""A data set that only lists, and its split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.data.sets.glyphs import Glyphs
from trainables.data.split import ClassSplit, split_dataset

Halves = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Listed(Glyphs):
    """The classes of some images, with groups of images, and maybe published halves."""

    images: Mapping[str, Sequence[str]]
    of_group: Mapping[str, str]
    published: Halves | None
    called: str

    def classes(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(keys) for name, keys in self.images.items()}

    def identity(self) -> str:
        return self.called

    def groups(self) -> Mapping[str, str]:
        return self.of_group

    def published_split(self) -> Halves | None:
        return self.published


def split_of(
    classes: Sequence[str] | Mapping[str, Sequence[str]],
    groups: Mapping[str, str] | None = None,
    *,
    published: Halves | None = None,
    identity: str = "data",
    **options: Any,
) -> ClassSplit:
    """Split ``classes``, names or images by name; an image of a class that is only named is called like it."""
    images = classes if isinstance(classes, Mapping) else {name: [name] for name in classes}
    dataset = Listed(images=images, of_group=groups or {}, published=published, called=identity)
    return split_dataset(dataset, dataset.classes(), **options)
