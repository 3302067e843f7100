"""How far others rank before a query's positives: the smooth ranks that PNP and Smooth-AP are made of.

Shapes: B batch (every sample a query), P pairs of a query and one of its positives.
"""

from dataclasses import dataclass

import torch

from trainables.losses.operations import same_and_different


@dataclass(frozen=True, kw_only=True)
class PositivePairs:
    """Every (query, positive) of a batch, the positive's smooth rank, and how the pairs average."""

    negatives_before_P: torch.Tensor
    positives_before_P: torch.Tensor | None
    query_P: torch.Tensor
    positives_B: torch.Tensor

    def mean_of_query_means(self, values_P: torch.Tensor) -> torch.Tensor:
        """The mean over a query's positives, then over the queries that have one (0 when none has)."""
        queries = (self.positives_B > 0).sum().clamp(min=1)
        return (values_P / self.positives_B[self.query_P]).sum() / queries


def positive_pairs(
    similarities_BB: torch.Tensor, labels_B: torch.Tensor, *, temperature: float, among_positives: bool
) -> PositivePairs:
    """R(i) = Σ_j σ((s_j − s_i)/temperature) for each positive i of each query (PNP, eq. 2 and 3).

    ``negatives_before_P`` sums over the query's negatives; ``positives_before_P``, where asked for, over its
    other positives. The query itself is neither.
    """
    same_BB, different_BB = same_and_different(labels_B)
    query_P, positive_P = same_BB.nonzero(as_tuple=True)
    # Rows are repeated by index_select, whose backward adds in parallel where that of indexing does not.
    rows_PB = similarities_BB.index_select(0, query_P)
    ahead_PB = ((rows_PB - rows_PB.gather(1, positive_P[:, None])) / temperature).sigmoid()
    positives_before_P = None
    if among_positives:
        others_PB = same_BB[query_P].scatter(1, positive_P[:, None], False)
        positives_before_P = (ahead_PB * others_PB).sum(1)
    return PositivePairs(
        negatives_before_P=(ahead_PB * different_BB[query_P]).sum(1),
        positives_before_P=positives_before_P,
        query_P=query_P,
        positives_B=same_BB.sum(1),
    )
