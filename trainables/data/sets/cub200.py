"""CUB-200-2011 (Wah et al. 2011): 200 species of birds, of which the first hundred train."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainables.data.listing import listed
from trainables.data.sets.published import Halves, PublishedDataset, halved
from trainables.mistakes import raise_if_any


@dataclass(frozen=True, kw_only=True)
class CUB200(PublishedDataset):
    """Classes are named as in ``classes.txt`` and come in its order."""

    title: ClassVar[str] = "CUB-200-2011"
    summary: ClassVar[str] = "11,788 photographs of 200 species of birds"
    publisher: ClassVar[str] = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
    layout: ClassVar[str] = """\
images.txt                 1 001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg
image_class_labels.txt     1 1
classes.txt                1 001.Black_footed_Albatross
images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"""

    def _needed(self) -> tuple[str, ...]:
        return "images.txt", "image_class_labels.txt", "classes.txt"

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": (100,),
            "test classes": (100,),
            "training images": (5_864,),
            "test images": (5_924,),
        }

    def _listed(self) -> Halves:
        names = self._table("classes.txt", "class_id class_name")
        paths = self._table("images.txt", "image_id image_name")
        labels = self._table("image_class_labels.txt", "image_id class_id")
        sentences = []
        if shared := sorted(name for name, count in Counter(names.values()).items() if count > 1):
            sentences.append(
                f"{len(shared)} names in classes.txt of {str(self.root)!r} are of more than one class: "
                f"{listed(shared)}. Restore the published files."
            )
        if odd := sorted(paths.keys() ^ labels.keys()):
            sentences.append(
                f"{len(odd)} images in {str(self.root)!r} are in only one of images.txt and image_class_labels.txt: "
                f"{listed(odd)}. Restore the published files."
            )
        if unnamed := sorted(set(labels.values()) - names.keys()):
            sentences.append(
                f"{len(unnamed)} classes in {str(self.root)!r} are in image_class_labels.txt and not in classes.txt: "
                f"{listed(unnamed)}. Restore the published files."
            )
        raise_if_any(sentences)
        classes: dict[str, list[str]] = {name: [] for name in names.values()}
        for image, path in paths.items():
            classes[names[labels[image]]].append(f"images/{path}")
        return halved({name: tuple(keys) for name, keys in classes.items()})
