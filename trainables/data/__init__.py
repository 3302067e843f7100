"""Data sets, the fixed split, the shared image store, augmentation and batch samplers."""

from trainables.data.cars196 import Cars196
from trainables.data.cub200 import CUB200
from trainables.data.dataset import Dataset
from trainables.data.folder import Folder
from trainables.data.glyphs import Glyphs
from trainables.data.inaturalist import INaturalist
from trainables.data.omniglot import Omniglot
from trainables.data.sop import SOP
from trainables.data.vehicleid import VehicleID

DATASETS: dict[str, type[Dataset]] = {
    "glyphs": Glyphs,
    "folder": Folder,
    "omniglot": Omniglot,
    "cub200": CUB200,
    "cars196": Cars196,
    "sop": SOP,
    "vehicleid": VehicleID,
    "inaturalist": INaturalist,
}

__all__ = ["DATASETS", "Dataset"]
