"""Groups, official parts and cameras of images: the classes that they join, and the galleries that they leave.

Also the check of all that a data set lists.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainables.data.dataset import is_utf8
from trainables.errors import InvalidInput, counted, listed, raise_if_any

if TYPE_CHECKING:
    from trainables.data.dataset import Dataset
    from trainables.data.split import ClassSplit

TRAIN, QUERY, GALLERY = "train", "query", "gallery"
"""The official parts of a data set."""


def check_listing(dataset: "Dataset", classes: Mapping[str, Sequence[str]]) -> None:
    """Check, without opening an image, that a data set lists each image once, by names that every file can hold.

    ``classes`` are those of the data set, whose folder may be slow to list.

    Raises:
        InvalidInput: the keys of a class are in no tuple or list, a name is no text in UTF-8, an image is listed twice;
            or groups, parts, cameras, superclasses or subsets are of other images and classes, or of too few.
    """
    unordered = {name: keys for name, keys in classes.items() if not isinstance(keys, tuple | list)}
    if loose := [f"{name} ({type(keys).__name__})" for name, keys in unordered.items()]:
        wrong = f"{counted(len(loose), 'class', 'classes')} whose images are in no tuple or list"
        raise InvalidInput(f"{wrong}: {listed(loose, shown=3)}. Give a tuple of keys.")
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
    raise_if_any(
        [
            f"The data set lists {what} ({len(names):,}): {listed(sorted(map(ascii, names)), shown=3)}. Correct it."
            for what, names in found.items()
            if names
        ]
    )


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
    """Check that every official query has an image of its class in its gallery, and each scored part such queries."""
    parts, cameras = dataset.parts(), dataset.cameras()
    if not parts and not cameras:
        return
    by_other = " that another camera took" if cameras else ""
    sentences = []
    scored = [*(("validation", names) for _, names in split.divisions), *([("test", split.test)] if split.test else ())]
    for part, names in scored:
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
