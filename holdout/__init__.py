"""Python interface to hyperparameter searches for deep metric learning whose choice uses no test classes.

>>> import holdout
>>> search = holdout.run("birds.yaml", {"search.trials": 4})  # starts, resumes or extends, as `holdout run` does
>>> search.trials("mpa")  # a pandas table
>>> search.summary.losses["mpa"].test
>>> holdout.load("runs/birds/models/mpa").index("photos/").query("heron.jpg", k=5)  # use a model

The studies of a search are plain Optuna studies in one file; see :attr:`Search.journal`.

Everything below is imported on first use, so ``import holdout`` is fast.
"""

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
_MODULES = {name.name: str(row.module) for row in _STUB.body if isinstance(row, ast.ImportFrom) for name in row.names}
"""The module of each name, from the stub that type checkers read."""

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
