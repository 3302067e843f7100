"""Valid names, and the packages of a user's own code."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

from trainables.metrics import METRICS, all_metrics, unknown_metrics
from trainables.metrics.table import split_subset
from trainables.mistakes import Mistakes, raise_if_any, suggestion

# What names may be, and which of them are known.


def is_plain_name(name: str) -> bool:
    """Whether a search may be called ``name``, which is fit for a folder then and leads nowhere else."""
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name))


def plain_name(name: str) -> str:
    """A search's ``name``, which has to be fit for a folder."""
    if not is_plain_name(name):
        raise ValueError(
            "a search's name names a folder: letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    return name


RESERVED = ("mlflow.db", "test_openings.jsonl", "test_openings.jsonl.lock")
"""What lies in the runs folder beside its searches."""


def folder_name(name: str) -> str:
    """A search's or campaign's ``name``, whose folder stands in the runs folder."""
    if name in RESERVED:
        raise ValueError(f"{name} is a file of the runs folder; give another name")
    return plain_name(name)


def unique(names: Sequence[str]) -> None:
    """Refuse names that are given more than once."""
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise Mistakes(f"each may be named once, and {', '.join(repeated)} is named again; keep one of them.")


def known_name(name: str, table: Iterable[str]) -> str:
    """``name``, which has to be one of ``table``."""
    known = list(table)
    if name not in known:
        raise Mistakes(f"{name} is not known{suggestion(name, known)}; there are {', '.join(known)}.")
    return name


def known_metric(name: str) -> str:
    """``name``, which has to be a metric's, or a metric's on a part of the test classes."""
    if unknown_metrics((split_subset(name)[0],)):
        raise Mistakes(
            f"{name} is not known{_metric_hint(name)}; there are {', '.join(METRICS)}, and your "
            "own by their import paths."
        )
    return name


def _metric_hint(name: str) -> str:
    """Which metric ``name`` may have meant: ``R@1`` is how papers write recall_at_1."""
    spelt_out = re.sub(r"(?i)^([rp])(?=@)", lambda match: {"r": "recall", "p": "precision"}[match[1].lower()], name)
    numbers = {int(number) for number in re.findall(r"[1-9]\d*", name)}
    return suggestion(spelt_out, all_metrics(sorted(numbers or {1})))


# Where parts of one's own are found: beside the user.


def find_parts_here() -> None:
    """Let ``mylab.losses:CircleLoss`` be imported from the folder that the command is given in.

    ``python -m`` does so by itself, and an installed program does not. The folder comes last, so that a file in it
    hides no library; ``python -P`` and ``PYTHONSAFEPATH``, which ask for safety, are obeyed. Ray's workers on this
    machine look in the driver's folder too.
    """
    here = os.getcwd()
    if not sys.flags.safe_path and here not in sys.path:
        sys.path.append(here)


# The packages of one's own that travel with a submitted search.


def shipped_packages(names: Sequence[str]) -> dict[str, Path]:
    """Where each package or module lies on this machine, by name.

    Raises:
        Mistakes: one is not found, or is no folder or file that could be copied.
    """
    found, mistakes = {}, []
    for name in names:
        path = _path(find_spec(name)) if name not in sys.builtin_module_names else None
        if path is None:
            mistakes.append(
                f"ship: no package {name} is found here; mend the name, or put the folder that holds it on PYTHONPATH."
            )
        else:
            found[name] = path
    raise_if_any(mistakes)
    return found


def _path(spec: ModuleSpec | None) -> Path | None:
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return Path(spec.origin) if spec.origin and spec.has_location else None
