"""Vectors of length 1, in training, evaluation and inference.

Shapes: N vectors, D dimensions.
"""

import torch
from torch import Tensor

_SAFE = {torch.float64: 2.0**400}
"""Vectors whose largest entry is between the inverse of this number and itself need no scaling."""


def unit(vectors: Tensor) -> Tensor:
    """Return ``vectors`` [..., D] scaled to length 1, whatever their length; zero stays zero and gets no gradient."""
    return unit_and_lengths(vectors)[0]


def unit_and_lengths(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``vectors`` [..., D] scaled to length 1, and their lengths [..., 1], infinite for those that are zero.

    Squares of very short or long vectors underflow or overflow, so these are first divided by a factor, according to
    their largest entry. It is 1 for all others, which have the bits of :func:`torch.nn.functional.normalize`.
    """
    most = _SAFE.get(vectors.dtype, 2.0**50)
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    factors = largest / largest.clamp(1 / most, most)
    factors.masked_fill_(factors == 0, torch.inf)
    scaled = vectors / factors
    lengths = scaled.norm(dim=-1, keepdim=True).clamp(min=0.5 / most)
    return scaled / lengths, lengths * factors


def without_direction(vectors_ND: Tensor) -> str:
    """Return a clause on the vectors that are zero or not finite: how many, and the first; empty if there is none."""
    bad_N = (vectors_ND.isfinite().logical_not() | (vectors_ND == 0).all(1, keepdim=True)).any(1)
    if not bad_N.any():  # waits for the device
        return ""
    rows = bad_N.nonzero().flatten()
    what = "zero" if vectors_ND[rows[0]].isfinite().all() else "not finite"
    return f"{len(rows)} of {len(vectors_ND)} embeddings are zero or not finite (row {int(rows[0])} is {what})"


def without_order(vectors_ND: Tensor) -> str:
    """Return the clause of :func:`without_direction`, or one on vectors that all have the same direction."""
    if bad := without_direction(vectors_ND):
        return bad
    # Rounding in deep networks separates equal ones by up to 8e-7; trainings that nearly collapse leave 8e-3.
    differ = ((unit(rows_BD) - unit(vectors_ND[:1])).norm(dim=1).max() > 2e-6 for rows_BD in vectors_ND.split(1024))
    return "" if len(vectors_ND) < 2 or any(differ) else f"all {len(vectors_ND):,} embeddings have the same direction"
