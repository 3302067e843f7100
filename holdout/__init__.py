"""Python interface to hyperparameter searches for deep metric learning that never peek at the test classes.

>>> import holdout
>>> search = holdout.run("birds.yaml", {"search.trials": 4})  # starts, resumes or extends, as `holdout run` does
>>> search.trials("mpa")  # a pandas table
>>> search.summary.losses["mpa"].test
>>> holdout.load("runs/birds/models/mpa").index("photos/").query("heron.jpg", k=5)  # use a model

The studies of a search are plain Optuna studies; two lines load one::

    import optuna
    study = optuna.load_study(study_name="birds/mpa", storage=holdout.open("birds").storage_url)

Everything below is imported on first use, so ``import holdout`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from search import __version__

if TYPE_CHECKING:
    from holdout.models import evaluate, load, losses
    from holdout.searches import Search, campaign, compare, open, run
    from trainables.data.dataset import Dataset, ItemDataset
    from trainables.inference.embedder import Embedder
    from trainables.inference.index.image_index import ImageIndex
    from trainables.mistakes import Failure, Mistakes
    from trainables.training.library_trainables import (
        EstimatorTrainable,
        LightningTrainable,
        SentenceTransformerTrainable,
    )
    from trainables.training.own_model import OwnModel
    from trainables.training.trainable import Choice, Float, Int, Items, Report, Trainable, trainable

__all__ = [
    "Choice",
    "Dataset",
    "Embedder",
    "EstimatorTrainable",
    "Failure",
    "Float",
    "ImageIndex",
    "Int",
    "ItemDataset",
    "Items",
    "LightningTrainable",
    "Mistakes",
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

_TRAINABLE = "trainables.training.trainable"
_MODULES = {
    **dict.fromkeys(("Choice", "Float", "Int", "Items", "Report", "Trainable", "trainable"), _TRAINABLE),
    **dict.fromkeys(
        ("EstimatorTrainable", "LightningTrainable", "SentenceTransformerTrainable"),
        "trainables.training.library_trainables",
    ),
    "Dataset": "trainables.data.dataset",
    "ItemDataset": "trainables.data.dataset",
    "Embedder": "trainables.inference.embedder",
    "Failure": "trainables.mistakes",
    "ImageIndex": "trainables.inference.index.image_index",
    "Mistakes": "trainables.mistakes",
    "OwnModel": "trainables.training.own_model",
    "Search": "holdout.searches",
    "campaign": "holdout.searches",
    "compare": "holdout.searches",
    "evaluate": "holdout.models",
    "load": "holdout.models",
    "losses": "holdout.models",
    "open": "holdout.searches",
    "run": "holdout.searches",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'holdout' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
