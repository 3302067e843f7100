"""A user-defined loss: Circle loss, with its search space.

In a search file, with the repository's root on ``PYTHONPATH``:

    losses: [proxy_anchor, "examples.circle_loss:CircleLoss"]
    space: {circle_loss: {margin: {low: 0.2, high: 0.4}}}

``holdout check examples.circle_loss:CircleLoss`` runs the contract tests of every loss on it.

Shapes: B batch, D embedding.
"""

from typing import ClassVar

import torch
from torch.nn.functional import softplus

from holdout.parts import (
    Float,
    Loss,
    Space,
    cosines,
    masked_logsumexp,
    raise_if_any,
    real,
    same_and_different,
    sizes,
)


class CircleLoss(Loss):
    """Circle loss (Sun et al., CVPR 2020, eq. 6-8) of each anchor in the batch; ``equation`` gives the formula.

    [S + margin]₊ and [1 + margin − S]₊ weight each similarity by its distance from the optimum. Here they have a
    gradient; the authors' code detaches them. An anchor without a positive or without a negative gives 0.
    """

    paper = "Circle loss (Sun et al. 2020, eq. 6-8)"
    equation = "mean_i log(1 + Σ_N e^{scale [S+margin]_+ (S-margin)} Σ_P e^{-scale [1+margin-S]_+ (S-1+margin)})"
    space: ClassVar[Space] = {
        "margin": Float(
            0.05,
            0.5,
            step=0.05,
            default=0.4,
            source="Sun et al., section 4.1, for fine-grained retrieval; range chosen around it",
        ),
        "scale": Float(
            16,
            256,
            log=True,
            default=80.0,
            source="Sun et al., section 4.1, for fine-grained retrieval; range chosen: up to that of faces",
        ),
    }

    def __init__(self, *, num_classes: int, embedding_dim: int, margin: float = 0.4, scale: float = 80.0) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *real("margin", margin, at_least=0, at_most=1),
                *real("scale", scale, above=0),
            ]
        )
        super().__init__()
        self.margin, self.scale = margin, scale

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        similarities_BB = cosines(embeddings_BD)
        same_BB, different_BB = same_and_different(labels_B)
        far_BB = (1 + self.margin - similarities_BB).relu()
        near_BB = (similarities_BB + self.margin).relu()
        pull_B = masked_logsumexp(-self.scale * far_BB * (similarities_BB - 1 + self.margin), same_BB, 1)
        push_B = masked_logsumexp(self.scale * near_BB * (similarities_BB - self.margin), different_BB, 1)
        return softplus(pull_B + push_B, threshold=40).mean()
