"""Omniglot (Lake et al. 2015): handwritten characters of 50 alphabets, laid out as torchvision unpacks it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from trainables.data.sets.published import Classes, Halves, PublishedDataset, grouped
from trainables.data.sets.rooted import images_below

TRAIN, TEST = "images_background", "images_evaluation"
FOLDER = "omniglot-py"


@dataclass(frozen=True, kw_only=True)
class Omniglot(PublishedDataset):
    """Characters of the background alphabets train; classes are named ``alphabet/character``, in that order.

    ``root`` may be the folder ``omniglot-py`` or, as in torchvision, the one that holds it.
    """

    title: ClassVar[str] = "Omniglot"
    summary: ClassVar[str] = "32,460 drawings of 1,623 characters of 50 alphabets, 20 each"
    publisher: ClassVar[str] = "https://github.com/brendenlake/omniglot"
    layout: ClassVar[str] = """\
omniglot-py/images_background/Korean/character01/0540_01.png
omniglot-py/images_evaluation/Tibetan/character01/1543_01.png"""

    @cached_property
    def _root(self) -> Path:
        assert self.root is not None
        inner = Path(self.root, FOLDER)
        return inner if inner.is_dir() else Path(self.root)

    def _needed(self) -> tuple[str, ...]:
        return TRAIN, TEST

    def _published(self) -> Mapping[str, tuple[int, ...]]:
        return {
            "training classes": (964,),
            "test classes": (659,),
            "training images": (19_280,),
            "test images": (13_180,),
        }

    def _listed(self) -> Halves:
        return self._half(TRAIN), self._half(TEST)

    def _half(self, folder: str) -> Classes:
        keys = sorted(images_below(self._root / folder, self._root))
        return grouped((key.removeprefix(f"{folder}/").rpartition("/")[0], key) for key in keys)
