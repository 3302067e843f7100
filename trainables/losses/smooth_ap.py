"""Smooth-AP: one minus the average precision, its ranks made smooth.

Shapes: B batch, D embedding, P pairs of a query and one of its positives.
"""

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import real
from trainables.losses.operations import cosines
from trainables.losses.ranking import positive_pairs
from trainables.mistakes import raise_if_any


class SmoothAP(Loss):
    """mean over queries, and over a query's positives i, of 1 − (1 + R(i,P)) / (1 + R(i,P) + R(i,N)).

    R(i,·) = Σ_j σ((s_j − s_i)/temperature) over the query's other positives P or its negatives N. The query is no
    positive of itself, and a query without positives counts nowhere. Source: Li et al., Rethinking the
    Optimization of Average Precision, eq. 3 and 4.
    """

    def __init__(self, *, num_classes: int, embedding_dim: int, temperature: float = 0.01) -> None:
        raise_if_any([*sizes(num_classes, embedding_dim), *real("temperature", temperature, above=0)])
        super().__init__()
        self.temperature = temperature

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = positive_pairs(cosines(embeddings_BD), labels_B, temperature=self.temperature, among_positives=True)
        assert pairs.positives_before_P is not None
        return pairs.mean_of_query_means(self.penalty(pairs.positives_before_P, pairs.negatives_before_P))

    @staticmethod
    def penalty(positives_before: torch.Tensor, negatives_before: torch.Tensor) -> torch.Tensor:
        """R(i,N) / (1 + R(i,P) + R(i,N)) of each R(i,P) and R(i,N), in any shape."""
        return negatives_before / (1 + positives_before + negatives_before)
