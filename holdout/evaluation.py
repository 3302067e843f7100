"""Scoring embeddings that were made anywhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike


def evaluate(
    embeddings: "ArrayLike | torch.Tensor",
    labels: "ArrayLike | torch.Tensor",
    metrics: Sequence[str] | Literal["all"] = ("recall_at_1", "map_at_r"),
    *,
    superclasses: "ArrayLike | torch.Tensor | None" = None,
) -> dict[str, float]:
    """Metrics of embeddings, each image a query against all others.

    Args:
        embeddings: [N, D], of any floating type; they are normalised here.
        labels: [N], whole numbers: each image's class.
        metrics: names such as ``recall_at_1``, ``map_at_r``, ``nmi``; "all" is all but those of superclasses.
        superclasses: [N], whole numbers: the larger class of each image, for ``nmi_super`` and ``f1_super``.

    Returns:
        each metric's value by name, in [0, 1] (distances as they are).

    Raises:
        Mistakes: an unknown name, no embeddings, not finite, labels of another number, or a metric of superclasses
            without them.
    """
    import torch

    from trainables.metrics import evaluate as evaluate_tensors

    superclasses_N = None if superclasses is None else torch.as_tensor(superclasses)
    return evaluate_tensors(
        torch.as_tensor(embeddings), torch.as_tensor(labels), metrics, superclasses_N=superclasses_N
    )
