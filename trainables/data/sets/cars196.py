"""Cars196 (Krause et al. 2013): 196 models of cars, of which the first 98 train."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from trainables.data.sets.published import Halves, PublishedDataset, halved
from trainables.mistakes import Mistakes

ANNOTATIONS = "cars_annos.mat"


@dataclass(frozen=True, kw_only=True)
class Cars196(PublishedDataset):
    """Classes are named as in ``class_names`` and come in its order; ``test`` of the annotations is not used."""

    title: ClassVar[str] = "Cars196"
    summary: ClassVar[str] = "16,185 photographs of 196 models of cars"
    publisher: ClassVar[str] = "https://ai.stanford.edu/~jkrause/cars/car_dataset.html"
    layout: ClassVar[str] = """\
cars_annos.mat             annotations (relative_im_path, class, …) and class_names
car_ims/000001.jpg"""

    def _needed(self) -> tuple[str, ...]:
        return (ANNOTATIONS,)

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": (98,),
            "test classes": (98,),
            "training images": (8_054,),
            "test images": (8_131,),
        }

    def _listed(self) -> Halves:
        from scipy.io import loadmat  # here, since no other data set should wait for it

        try:
            content = loadmat(self._root / ANNOTATIONS, squeeze_me=True)
            names = [str(name) for name in content["class_names"]]
            if len(set(names)) < len(names):
                raise ValueError("two classes have one name")
            classes: dict[str, list[str]] = {name: [] for name in names}
            annotations = content["annotations"]
            for path, label in zip(annotations["relative_im_path"], annotations["class"], strict=True):
                if not 1 <= label <= len(names):
                    raise ValueError(f"a class is {label}, and there are {len(names)}")
                classes[names[label - 1]].append(str(path))
        except Exception as error:  # scipy raises anything when a file is damaged
            raise Mistakes(
                f"{ANNOTATIONS} in {str(self.root)!r} is damaged or not that of {self.title} "
                f"({type(error).__name__}: {error}). Restore the published file."
            ) from error
        return halved({name: tuple(keys) for name, keys in classes.items()})
