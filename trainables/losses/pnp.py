"""PNP: penalise the negatives that a query ranks before its positives, and nothing else.

Shapes: B batch, D embedding, P pairs of a query and one of its positives.
"""

from collections.abc import Callable

import torch

from trainables.losses.base import Loss, sizes
from trainables.losses.domains import choice, real
from trainables.losses.operations import cosines
from trainables.losses.ranking import positive_pairs
from trainables.mistakes import raise_if_any

VARIANTS: dict[str, Callable[[torch.Tensor, float, float], torch.Tensor]] = {
    "O": lambda before, bound, alpha: before,
    "Iu": lambda before, bound, alpha: (1 + before) * before.log1p(),
    "Ib": lambda before, bound, alpha: (bound * before - (bound * before).log1p()) / bound**2,
    "Ds": lambda before, bound, alpha: before.log1p(),
    # 1 − (1+R)^−alpha, without losing the small R that a good ranking has
    "Dq": lambda before, bound, alpha: -(-alpha * before.log1p()).expm1(),
}
"""What each variant makes of R, the negatives before a positive: f(R, bound, alpha)."""


class PNP(Loss):
    """mean over queries, and over a query's positives i, of f(R_i), R_i = Σ_{n∈N} σ((s_n − s_i)/temperature).

    f by variant: O: R; Iu: (1+R) log(1+R); Ib: (bR − log(1+bR))/b² with b = ``bound``; Ds: log(1+R);
    Dq: 1 − (1+R)^−alpha. The query is no positive of itself, and a query without positives counts nowhere.

    Iu is eq. 7, which the authors' code has too. Eq. 6, printed as its derivative, is that of another function:
    log(1+R) belongs to (1+R) log(1+R) − R, and eq. 7 has 1 + log(1+R). So at R = 0 Iu has O's derivative and not, as
    the text says of it, none: its gradient does not fade as a ranking gets right, which Ib's does, and no learning
    rate makes up for that.
    Source: Li et al., Rethinking the Optimization of Average Precision, eq. 2-13.
    """

    def __init__(
        self,
        *,
        num_classes: int,
        embedding_dim: int,
        variant: str = "Dq",
        temperature: float = 0.01,
        bound: float = 4.0,
        alpha: float = 4.0,
    ) -> None:
        raise_if_any(
            [
                *sizes(num_classes, embedding_dim),
                *choice("variant", variant, VARIANTS),
                *real("temperature", temperature, above=0),
                *real("bound", bound, above=0),
                *real("alpha", alpha, at_least=1),
            ]
        )
        super().__init__()
        self.variant, self.temperature, self.bound, self.alpha = variant, temperature, bound, alpha

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        pairs = positive_pairs(cosines(embeddings_BD), labels_B, temperature=self.temperature, among_positives=False)
        return pairs.mean_of_query_means(self.penalty(pairs.negatives_before_P))

    def penalty(self, negatives_before: torch.Tensor) -> torch.Tensor:
        """f(R) of each R, in any shape."""
        return VARIANTS[self.variant](negatives_before, self.bound, self.alpha)
