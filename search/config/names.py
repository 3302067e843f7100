"""Valid names, and the packages of a user's own code."""

import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from trainables.common.errors import InvalidInput, raise_if_any, suggestion
from trainables.metrics import METRICS, all_metrics, split_subset, unknown_metrics

RUNS_FILES = ("mlflow.db", "test_openings.jsonl", "test_openings.jsonl.lock", "test_openings.images")
"""Files of the runs folder, next to the folders of its searches."""


def is_plain_name(name: str) -> bool:
    """Return True if ``name`` is a safe name for a folder."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name))


def plain_name(name: str) -> str:
    """Return ``name``; raise if it cannot name a folder."""
    if not is_plain_name(name):
        raise ValueError(
            "a search's name names a folder: up to 100 letters, digits, '.', '_' and '-', beginning with a letter or "
            "digit"
        )
    return name


def folder_name(name: str) -> str:
    """Return the ``name`` of a search or campaign; raise if it cannot name a folder in the runs folder."""
    if name in RUNS_FILES:
        raise ValueError(f"{name} is a file of the runs folder; give another name")
    return plain_name(name)


def unique(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``names``; raise if one is given more than once."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInput(f"{', '.join(repeated)} is given more than once; keep one of each.")
    return names


def known_trainable(path: str) -> str:
    """Return ``path``; raise if it is not the import path of a complete training."""
    from trainables.training.trainable import trainable_class  # imports numpy

    trainable_class(path)
    return path


def known_metric(name: str) -> str:
    """Return ``name``; raise if it is not a metric, possibly on a part of the test classes."""
    if unknown_metrics((split_subset(name)[0],)):
        # papers write recall_at_1 as R@1
        spelt = re.sub(r"(?i)^([rp])(?=@)", lambda match: {"r": "recall", "p": "precision"}[match[1].lower()], name)
        numbers = {int(number) for number in re.findall(r"[1-9]\d*", name)}
        hint = suggestion(spelt, all_metrics(sorted(numbers or {1})))
        raise InvalidInput(
            f"{name} is not known{hint}; choose one of {', '.join(METRICS)}, or give the import path of your own."
        )
    return name


def allowed_measure(name: str) -> str:
    """Return ``name``; raise unless it is a cost of a model, such as ``embed_ms``, or a metric."""
    from trainables.training.spec import COSTS  # imports the configuration of trainings

    return name if name in COSTS else known_metric(name)


def find_parts_here() -> None:
    """Make modules in the current folder importable, for user-defined parts such as ``mylab.losses:CircleLoss``.

    ``python -m`` does this by default, and so do Ray's workers on this machine. The folder is added last, so that a
    file in it shadows no library, and not at all under ``python -P`` or ``PYTHONSAFEPATH``.
    """
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise InvalidInput("The current folder was removed; change to another one.") from None
    if not sys.flags.safe_path and here not in sys.path:
        sys.path.append(here)


def shipped_packages(names: Sequence[str]) -> dict[str, Path]:
    """Return the path of each package or module on this machine, by name; raise if one cannot be copied."""
    found, mistakes = {}, []
    for name in names:
        spec = find_spec(name) if name not in sys.builtin_module_names else None
        folders = (spec and spec.submodule_search_locations) or ()
        path = next(iter(folders), spec.origin if spec and spec.has_location else None)
        if path is None:
            mistakes.append(
                f"ship: the package {name} was not found; correct the name, or add the folder that holds it to "
                "PYTHONPATH."
            )
        else:
            found[name] = Path(path)
    raise_if_any(mistakes)
    return found
