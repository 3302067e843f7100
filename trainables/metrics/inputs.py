"""What every metric asks of its input.

Shapes: N images, D embedding.
"""

from collections.abc import Sequence

import torch

from trainables.metrics.table import superclass_metrics
from trainables.mistakes import Mistakes, raise_if_any


def checked(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings detached and the labels beside them, on one device.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    mistakes = []
    if embeddings_ND.ndim != 2 or 0 in embeddings_ND.shape:
        mistakes.append(
            f"Embeddings must be N rows of D numbers, not of shape {tuple(embeddings_ND.shape)}:"
            " give at least one image."
        )
    elif not embeddings_ND.isfinite().all():
        rows = int((~embeddings_ND.isfinite()).any(1).sum())
        mistakes.append(f"{rows} of {len(embeddings_ND)} embeddings are not finite: the training diverged.")
    if labels_N.shape != embeddings_ND.shape[:1]:
        mistakes.append(
            f"Labels must be one an embedding, not of shape {tuple(labels_N.shape)} beside"
            f" {tuple(embeddings_ND.shape)}: give {len(embeddings_ND)}."
        )
    raise_if_any(mistakes)
    return embeddings_ND.detach(), labels_N.to(embeddings_ND.device)


def checked_superclasses(names: Sequence[str], superclasses_N: torch.Tensor | None) -> torch.Tensor:
    """The superclass of each image, on the CPU, for those of the metrics ``names`` that need it.

    Raises:
        Mistakes: there are none.
    """
    if superclasses_N is None:
        raise Mistakes(
            f"{', '.join(superclass_metrics(names))} compares clusters with superclasses, and none are given: give the"
            " superclass of each image."
        )
    return superclasses_N.cpu()
