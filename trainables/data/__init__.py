"""Data sets, the fixed split, the shared image store, augmentation and batch samplers."""

from trainables.data.dataset import Dataset
from trainables.data.folder import Folder
from trainables.data.glyphs import Glyphs

DATASETS: dict[str, type[Dataset]] = {
    "glyphs": Glyphs,
    "folder": Folder,
}

__all__ = ["DATASETS", "Dataset"]
