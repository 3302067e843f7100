"""The data set that a name and options describe."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from search.config.validation_errors import build
from trainables.data import DATASETS, Dataset
from trainables.mistakes import Mistakes, suggestion


def known_name(name: str) -> str:
    """``name``, which has to be a row of the table."""
    if name not in DATASETS:
        raise Mistakes(f"name must be one of {', '.join(DATASETS)}; it is {name!r}{suggestion(name, DATASETS)}.")
    return name


def build_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set ``name`` of the table.

    Raises:
        Mistakes: an unknown name or option, or all that the data set itself refuses.
    """
    dataset = DATASETS[known_name(name)]
    return build(dataset, options, known=signature(dataset).parameters, unknown=f"{name} has no such option")
