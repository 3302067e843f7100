"""How dense classes are and how far apart: mean cosine distances within and between them (Roth et al. 2020).

Shapes: N images, D embedding, C classes.
"""

import torch

from trainables.metrics.inputs import checked

_ROWS = 16384


def distance_metrics(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> dict[str, float]:
    """``dists_intra``, ``dists_inter`` and ``dists_ratio``; NaN where there are no two to compare.

    Example: unit vectors at 0° and 90° of class a and at 180° of class b: intra = 1 − cos 90° = 1, inter =
    1 − cos 135° = 1.707.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    return distances_of(*class_distances(embeddings_ND, labels_N))


def distances_of(intra_C: torch.Tensor, inter_C: torch.Tensor) -> dict[str, float]:
    """The metrics, from each class's distances as :func:`class_distances` gives them."""
    within, between = intra_C[~intra_C.isnan()].mean().item(), inter_C.mean().item()
    ratio = within / between if between else float("nan")
    return {"dists_intra": within, "dists_inter": between, "dists_ratio": ratio}


def class_distances(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean distance within each class, and from its mean to those of the other classes: float64 [C].

    NaN of a class of one image, and where there is one class.

    Raises:
        Mistakes: no embeddings, not finite, or labels of another number.
    """
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    _, class_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    sums_CD = torch.zeros(len(sizes_C), embeddings_ND.shape[1], dtype=torch.float64, device=embeddings_ND.device)
    squares_C = sums_CD.new_zeros(len(sizes_C))
    for rows_BD, class_B in zip(embeddings_ND.split(_ROWS), class_N.split(_ROWS), strict=True):
        unit_BD = torch.nn.functional.normalize(rows_BD.double())
        sums_CD.index_add_(0, class_B, unit_BD)
        squares_C.index_add_(0, class_B, unit_BD.square().sum(1))
    # 1 − the mean of x_i·x_j over i ≠ j, from Σ x and Σ x·x: Σ_{i≠j} x_i·x_j = |Σ x|² − Σ x·x.
    intra_C = 1 - (sums_CD.square().sum(1) - squares_C) / (sizes_C * (sizes_C - 1))
    intra_C[sizes_C < 2] = float("nan")
    means_CD = torch.nn.functional.normalize(sums_CD)
    others_C = means_CD @ means_CD.sum(0) - means_CD.square().sum(1)
    inter_C = 1 - others_C / (len(sizes_C) - 1) if len(sizes_C) > 1 else torch.full_like(others_C, float("nan"))
    return intra_C.cpu(), inter_C.cpu()
