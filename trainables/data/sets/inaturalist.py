"""iNaturalist 2018 (Van Horn et al. 2018): species of plants and animals, split as Brown et al. (Smooth-AP, 2020).

They trained on 5,690 of the 8,142 categories. Their lists can be given; without them the training categories are
those whose names hash lowest, in the same proportion: neither an order (plants first) nor a random generator decides.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainables.data.images import IMAGE_SUFFIXES
from trainables.data.listing import listed
from trainables.data.sets.published import Halves, PublishedDataset, grouped, read_list
from trainables.mistakes import Mistakes

ANNOTATIONS = ("train2018.json", "val2018.json")
TRAINING_CATEGORIES, CATEGORIES, IMAGES = 5_690, 8_142, 461_939


def _category(line: str) -> str:
    """The category of a line that names it, as in ``7477``, or that is the path of one of its images."""
    parts = line.split("/")
    is_image = os.path.splitext(parts[-1])[1].lower() in IMAGE_SUFFIXES
    return parts[-2] if is_image and len(parts) > 1 else parts[-1]


@dataclass(frozen=True, kw_only=True)
class INaturalist(PublishedDataset):
    """Training and validation images together; classes are named by their category's number, and come in its order."""

    title: ClassVar[str] = "iNaturalist 2018"
    summary: ClassVar[str] = "461,939 photographs of 8,142 species of plants and animals"
    publisher: ClassVar[str] = "https://github.com/visipedia/inat_comp/tree/master/2018"
    layout: ClassVar[str] = """\
train2018.json             categories, images (file_name) and annotations (category_id)
val2018.json               the same
train_val2018/Plantae/7477/3b60c9486db1d2ee875f11a669fbde4a.jpg"""

    class_list: str | None = field(
        default=None,
        metadata={
            "about": "a file of training categories, or of their images, below root or absolute; null: a hash decides"
        },
    )

    def _needed(self) -> tuple[str, ...]:
        return ANNOTATIONS

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": (TRAINING_CATEGORIES,),
            "test classes": (CATEGORIES - TRAINING_CATEGORIES,),
            "images": (IMAGES,),
        }

    def _listed(self) -> Halves:
        pairs = [pair for name in ANNOTATIONS for pair in self._pairs(name)]
        classes = grouped(pairs)
        names = sorted(classes, key=int)
        training = self._training(names)
        train = {name: classes[name] for name in names if name in training}
        return train, {name: classes[name] for name in names if name not in training}

    def _pairs(self, name: str) -> Iterator[tuple[str, str]]:
        """Category and path of each image of an annotation file."""
        try:
            content = json.loads((self._root / name).read_bytes())
            paths = {image["id"]: image["file_name"] for image in content["images"]}
            for annotation in content["annotations"]:
                path = paths[annotation["image_id"]]
                if not isinstance(path, str):
                    raise TypeError(f"a file_name is {path!r}")
                yield str(int(annotation["category_id"])), path
        except Exception as error:  # what should be a table may be anything, as deeply nested as one likes
            raise Mistakes(
                f"{name} in {str(self.root)!r} is damaged or not that of {self.title} "
                f"({type(error).__name__}: {error}). Restore the published file."
            ) from error

    def _training(self, names: list[str]) -> set[str]:
        if self.class_list is None:
            hashed = sorted(names, key=lambda name: hashlib.sha256(f"inaturalist:{name}".encode()).digest())
            return set(hashed[: len(names) * TRAINING_CATEGORIES // CATEGORIES])
        lines = read_list(self._root / self.class_list)
        training = dict.fromkeys(_category(line.strip()) for line in lines if line.strip())
        known = set(names)
        if unknown := [name for name in training if name not in known]:
            raise Mistakes(
                f"dataset.class_list is {self.class_list!r}, and {len(unknown)} of the {len(training)} categories "
                f"in it are not in the annotations: {listed(unknown)}. Give a category or the path of an image a line."
            )
        return set(training)
