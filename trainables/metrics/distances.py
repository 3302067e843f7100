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
    embeddings_ND, labels_N = checked(embeddings_ND, labels_N)
    _, class_N, sizes_C = labels_N.unique(return_inverse=True, return_counts=True)
    sums_CD = torch.zeros(len(sizes_C), embeddings_ND.shape[1], dtype=torch.float64, device=embeddings_ND.device)
    squares_C = sums_CD.new_zeros(len(sizes_C))
    for rows_BD, class_B in zip(embeddings_ND.split(_ROWS), class_N.split(_ROWS), strict=True):
        unit_BD = torch.nn.functional.normalize(rows_BD.double())
        sums_CD.index_add_(0, class_B, unit_BD)
        squares_C.index_add_(0, class_B, unit_BD.square().sum(1))
    several_C = sizes_C > 1
    intra_C = _mean_distance(sums_CD, squares_C, sizes_C)[several_C]
    means_CD = torch.nn.functional.normalize(sums_CD)
    inter = _mean_distance(means_CD.sum(0), means_CD.square().sum(), torch.tensor(len(sizes_C)))
    within, between = intra_C.mean().item(), inter.item()
    ratio = within / between if between else float("nan")
    return {"dists_intra": within, "dists_inter": between, "dists_ratio": ratio}


def _mean_distance(sum_D: torch.Tensor, squares: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """1 − the mean of x_i·x_j over i ≠ j, from Σ x and Σ x·x: Σ_{i≠j} x_i·x_j = |Σ x|² − Σ x·x."""
    return 1 - (sum_D.square().sum(-1) - squares) / (count * (count - 1))
