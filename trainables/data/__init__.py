"""Data sets by name, the fixed split, the shared image store, augmentation and batch samplers."""

from trainables.data.dataset import Dataset
from trainables.parts import PartRow, PartTable

_ROWS = {
    "glyphs": PartRow(path="trainables.data.sets.glyphs:Glyphs"),
    "folder": PartRow(path="trainables.data.sets.folder:Folder"),
    "omniglot": PartRow(path="trainables.data.sets.omniglot:Omniglot"),
    "cub200": PartRow(path="trainables.data.sets.cub200:CUB200"),
    "cars196": PartRow(path="trainables.data.sets.cars196:Cars196"),
    "sop": PartRow(path="trainables.data.sets.sop:SOP"),
    "vehicleid": PartRow(path="trainables.data.sets.vehicleid:VehicleID"),
    "inaturalist": PartRow(path="trainables.data.sets.inaturalist:INaturalist"),
}

DATASETS: PartTable[type[Dataset], PartRow] = PartTable("data set", _ROWS, base="trainables.data.dataset:Dataset")

__all__ = ["DATASETS", "Dataset"]
