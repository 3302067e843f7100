"""Python interface to hyperparameter searches for deep metric learning that never peek at the test classes.

>>> import holdout
>>> search = holdout.run("birds.yaml", {"search.trials": 4})  # starts, resumes or extends, as `holdout run` does
>>> search.trials("mpa")  # a pandas table
>>> search.summary.losses["mpa"].test
>>> holdout.load("runs/birds/models/mpa").index("photos/").query("heron.jpg", k=5)  # use a model

The studies of a search are plain Optuna studies in one file; see :attr:`Search.journal`.

Everything below is imported on first use, so ``import holdout`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdout.models import evaluate, load, losses
    from holdout.searches import Search, campaign, compare, open, run
    from search import __version__
    from trainables.data.dataset import Dataset, ItemDataset
    from trainables.errors import Failure, InvalidInput
    from trainables.inference.embedder import Embedder
    from trainables.inference.index import ImageIndex
    from trainables.ranges import Choice, Float, Int
    from trainables.training.library_trainables import (
        EstimatorTrainable,
        LightningTrainable,
        SentenceTransformerTrainable,
    )
    from trainables.training.own_model import OwnModel
    from trainables.training.trainable import Items, Report, Trainable, trainable

__all__ = [
    "Choice",
    "Dataset",
    "Embedder",
    "EstimatorTrainable",
    "Failure",
    "Float",
    "ImageIndex",
    "Int",
    "InvalidInput",
    "ItemDataset",
    "Items",
    "LightningTrainable",
    "OwnModel",
    "Report",
    "Search",
    "SentenceTransformerTrainable",
    "Trainable",
    "__version__",
    "campaign",
    "compare",
    "evaluate",
    "load",
    "losses",
    "open",
    "run",
    "trainable",
]

_PATHS = {
    "__version__": "search:__version__",
    "Choice": "trainables.ranges:Choice",
    "Dataset": "trainables.data.dataset:Dataset",
    "Embedder": "trainables.inference.embedder:Embedder",
    "EstimatorTrainable": "trainables.training.library_trainables:EstimatorTrainable",
    "Failure": "trainables.errors:Failure",
    "Float": "trainables.ranges:Float",
    "ImageIndex": "trainables.inference.index:ImageIndex",
    "Int": "trainables.ranges:Int",
    "ItemDataset": "trainables.data.dataset:ItemDataset",
    "Items": "trainables.training.trainable:Items",
    "LightningTrainable": "trainables.training.library_trainables:LightningTrainable",
    "InvalidInput": "trainables.errors:InvalidInput",
    "OwnModel": "trainables.training.own_model:OwnModel",
    "Report": "trainables.training.trainable:Report",
    "Search": "holdout.searches:Search",
    "SentenceTransformerTrainable": "trainables.training.library_trainables:SentenceTransformerTrainable",
    "Trainable": "trainables.training.trainable:Trainable",
    "campaign": "holdout.searches:campaign",
    "compare": "holdout.searches:compare",
    "evaluate": "holdout.models:evaluate",
    "load": "holdout.models:load",
    "losses": "holdout.models:losses",
    "open": "holdout.searches:open",
    "run": "holdout.searches:run",
    "trainable": "trainables.training.trainable:trainable",
}
"""Where each name is, as ``module:name``."""


def __getattr__(name: str) -> Any:
    if name not in _PATHS:
        raise AttributeError(f"module 'holdout' has no attribute {name!r}; it has {', '.join(__all__)}")
    module, _, attribute = _PATHS[name].partition(":")
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
