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
from importlib.util import find_spec
from pathlib import Path
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

_ROWS = (
    "holdout.models:evaluate load losses",
    "holdout.searches:Search campaign compare open run",
    "search:__version__",
    "trainables.data.dataset:Dataset ItemDataset",
    "trainables.errors:Failure InvalidInput",
    "trainables.inference.embedder:Embedder",
    "trainables.inference.index:ImageIndex",
    "trainables.ranges:Choice Float Int",
    "trainables.training.library_trainables:EstimatorTrainable LightningTrainable SentenceTransformerTrainable",
    "trainables.training.own_model:OwnModel",
    "trainables.training.trainable:Items Report Trainable trainable",
)
"""The names of each module."""

_MODULES = {name: module for module, _, names in (row.partition(":") for row in _ROWS) for name in names.split()}

__all__ = sorted(_MODULES)


def shadowed() -> str | None:
    """Return a sentence if Python finds a user's module instead of a package of the repository; None otherwise.

    Only an editable installation has these packages at the top level; a wheel has them below ``holdout``.
    """
    here = Path(__file__).parent
    for name in () if (here / "search").is_dir() else ("search", "spaces", "trainables"):
        found = find_spec(name)
        origin = Path(found.origin).resolve() if found and found.origin else None
        if origin != here.resolve().with_name(name) / "__init__.py":
            return (
                f"Holdout is installed as editable, and {origin or f'a folder {name}'} hides its package {name}. "
                "Rename that, or install Holdout with `pip install` and without --editable."
            )
    return None


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'holdout' has no attribute {name!r}; it has {', '.join(__all__)}")
    if problem := shadowed():
        raise ImportError(problem)
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
