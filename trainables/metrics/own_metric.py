"""A metric of one's own, by its import path."""

from collections.abc import Callable
from typing import Any

from trainables.mistakes import Mistakes
from trainables.parts import load_part


def own_metric(path: str) -> Callable[..., Any]:
    """The function at ``path``: of embeddings [N, D] and labels [N], a number that is better when it is larger.

    Raises:
        Mistakes: it is not there, or is no function.
    """
    metric = load_part(path, kind="metric")
    if not callable(metric) or isinstance(metric, type):
        raise Mistakes(
            f"The metric {path!r} must be a function of embeddings [N, D] and labels [N] that gives a number; it is "
            f"{metric!r:.100}. Name a function."
        )
    function: Callable[..., Any] = metric
    return function
