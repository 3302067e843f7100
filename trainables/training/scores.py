"""The metrics that a user-defined training computes itself, by ``score``.

Legend: N items.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainables.mistakes import Mistakes, counted, raise_if_any, suggestion

if TYPE_CHECKING:
    from trainables.training.trainable import Trainable


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Metrics of N items by name: one number, float64 [], or a value per item, float64 [N], whose mean is the metric.

    Higher is better.
    """

    values: Mapping[str, NDArray[np.float64]]

    def means(self, names: Sequence[str]) -> dict[str, float]:
        """Return the metrics ``names``."""
        return {name: float(self.values[name].mean()) for name in names}

    def per_item(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of ``names`` that have a value per item."""
        return tuple(name for name in names if self.values[name].ndim)

    @property
    def not_finite(self) -> str | None:
        """Return the first metric with a value that is not finite; None if there is none."""
        return next((name for name, values in self.values.items() if not np.isfinite(values).all()), None)


def checked_scores(found: Any, own: "type[Trainable]", items: int) -> Scores:
    """Check and convert what ``score`` of the class ``own`` returned.

    Args:
        found: the returned value.
        own: the class, which declares its metrics.
        items: the number of items that were scored.

    Raises:
        Mistakes: it lacks a metric that the class declares, has others, or a value is neither a number nor one number
            per item; all that is wrong.
    """
    if not isinstance(found, Mapping):
        raise Mistakes(f"score must return a mapping from metrics to values; it returned {type(found).__name__}.")
    declared = tuple(own.metrics)
    mistakes = [
        f"score returned {name!r:.60}, which metrics does not declare{suggestion(str(name), declared)}; add it there."
        for name in found
        if name not in declared
    ]
    if missing := [name for name in declared if name not in found]:
        mistakes.append(
            f"score must return every metric that the class declares; {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing."
        )
    values: dict[str, NDArray[np.float64]] = {}
    for name in declared:
        if name in found:
            try:
                values[name] = _values(name, found[name], items)
            except Mistakes as error:
                mistakes += error.sentences
    raise_if_any(mistakes)
    return Scores(values=values)


def _values(name: str, found: Any, items: int) -> NDArray[np.float64]:
    if hasattr(found, "detach"):  # a tensor
        found = found.detach().cpu()
        found = (found.float() if found.is_floating_point() else found).numpy()  # NumPy has no bfloat16
    if not isinstance(found, np.ndarray | np.generic | int | float):
        raise Mistakes(
            f"score must return {name} as a number, or as an array with a number per item; it returned "
            f"{type(found).__name__}."
        )
    values = np.asarray(found)
    if values.dtype.kind not in "biuf":
        raise Mistakes(f"score must return real numbers; {name} is {values.dtype}.")
    if values.shape not in ((), (items,)):
        shape = " × ".join(map(str, values.shape))
        raise Mistakes(
            f"score must return {name} as a number, or as one number for each of {counted(items, 'item')}; it returned "
            f"{shape}."
        )
    return values.astype(np.float64)
