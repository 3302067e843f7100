"""Data sets by name, class splits, the shared image store, augmentation and batch samplers."""

from trainables.data.dataset import Dataset
from trainables.parts import PartRow, PartTable

_ROWS = {
    "glyphs": PartRow(path="trainables.data.sets.glyphs:Glyphs"),
    "folder": PartRow(path="trainables.data.sets.folders:Folder"),
    "manifest": PartRow(path="trainables.data.sets.manifest:Manifest"),
    "features": PartRow(path="trainables.data.sets.features:FeatureFile"),
    "omniglot": PartRow(path="trainables.data.sets.benchmarks:Omniglot"),
    "cub200": PartRow(path="trainables.data.sets.benchmarks:CUB200"),
    "cars196": PartRow(path="trainables.data.sets.benchmarks:Cars196"),
    "sop": PartRow(path="trainables.data.sets.benchmarks:SOP"),
    "inshop": PartRow(path="trainables.data.sets.benchmarks:InShop"),
    "vehicleid": PartRow(path="trainables.data.sets.benchmarks:VehicleID"),
    "inaturalist": PartRow(path="trainables.data.sets.benchmarks:INaturalist"),
}

DATASETS: PartTable[type[Dataset], PartRow] = PartTable("data set", _ROWS, base="trainables.data.dataset:Dataset")
