"""Groups, official parts and cameras of images: the classes that they join, and the galleries that they leave."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainables.errors import listed, raise_if_any

if TYPE_CHECKING:
    from trainables.data.dataset import Dataset
    from trainables.data.split import ClassSplit

TRAIN, QUERY, GALLERY = "train", "query", "gallery"
"""The official parts of a data set."""


def joined_classes(classes: Mapping[str, Sequence[str]], groups: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """Return the connected components of two or more classes, which share groups; ``groups`` are those of images.

    >>> joined_classes({"a": ["1"], "b": ["2"], "c": ["3"]}, {"1": "shop", "3": "shop"})
    (('a', 'c'),)
    """
    component_of: dict[str, list[str]] = {}
    of_group: dict[str, list[str]] = {}
    for name, keys in classes.items():
        component = component_of[name] = [name]
        for group in dict.fromkeys(groups[key] for key in keys if key in groups):
            other = of_group.setdefault(group, component)
            other = component_of[other[0]]
            if other is not component:
                other += component
                component_of |= dict.fromkeys(component, other)
                component = other
    components = {id(component): component for component in component_of.values() if len(component) > 1}
    position = {name: number for number, name in enumerate(classes)}
    return tuple(tuple(sorted(component, key=position.__getitem__)) for component in components.values())


def check_galleries(dataset: "Dataset", split: "ClassSplit", classes: Mapping[str, Sequence[str]]) -> None:
    """Check that every official query has an image of its class in its gallery, and each scored part such queries.

    Raises:
        InvalidInput: it has not.
    """
    parts, cameras = dataset.parts(), dataset.cameras()
    if not parts and not cameras:
        return
    by_other = " that another camera took" if cameras else ""
    sentences = []
    for part, names in [*(("validation", names) for _, names in split.divisions), ("test", split.test)]:
        relevant_of = {key: count for name in names for key, count in _relevant(classes[name], parts, cameras)}
        official = [key for key in relevant_of if parts.get(key) == QUERY]
        if without := [key for key in official if not relevant_of[key]]:
            sentences.append(
                f"A gallery without the query's class: {len(without):,} of the {len(official):,} {part} queries have "
                f"no image of their class{by_other} in it, such as {listed(without, shown=3)}. Add images, or remove "
                "these queries."
            )
        elif not any(relevant_of.values()):
            sentences.append(
                f"No query of the {len(names)} {part} classes has an image of its class{by_other} to find. Correct the "
                "parts and cameras of the images."
            )
    raise_if_any(list(dict.fromkeys(sentences)))


def _relevant(keys: Sequence[str], parts: Mapping[str, str], cameras: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the queries among the images of a class, each with the number of relevant images in its gallery."""
    gallery = Counter(cameras.get(key, key) for key in keys if parts.get(key) != QUERY)
    size = gallery.total()
    return [(key, size - gallery[cameras.get(key, key)]) for key in keys if parts.get(key) != GALLERY]
