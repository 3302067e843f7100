"""The data set that a name and options describe."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from inspect import signature
from typing import Any

from search.config.validation.validation_errors import build
from trainables.data import DATASETS, Dataset
from trainables.mistakes import Mistakes, raise_if_any
from trainables.parts import is_own


def known_name(name: str) -> str:
    """``name``, which has to be a row of the table, or an import path."""
    raise_if_any(DATASETS.problems("name", name))
    return name


def build_dataset(name: str, options: Mapping[str, Any]) -> Dataset:
    """The data set ``name`` of the table, or the one at this import path.

    Raises:
        Mistakes: an unknown name or option, or all that the data set itself refuses.
    """
    dataset = DATASETS[known_name(name)]
    if not is_dataclass(dataset):
        raise Mistakes(f"The data set {name!r} must be a dataclass, whose fields are its options; decorate it.")
    unknown = f"{name} has no such option"
    try:
        return build(dataset, options, known=signature(dataset).parameters, unknown=unknown)
    except ValueError:
        raise
    except Exception as error:
        if not is_own(name):
            raise
        raise Mistakes(f"The data set {name!r} raises {type(error).__name__}: {error}; mend it.") from error
