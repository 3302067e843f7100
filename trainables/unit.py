"""Vectors of length 1, in training, evaluation and inference.

Shapes: N vectors, D dimensions.
"""

import torch
from torch import Tensor

_SAFE = {torch.float64: (2.0**400, 2.0**700)}
"""Lengths down to the inverse of the first number and up to it need no scaling; others are scaled by the second."""


def unit(vectors: Tensor) -> Tensor:
    """Return ``vectors`` [..., D] scaled to length 1, whatever their length; zero stays zero and gets no gradient.

    Squares of very short or long vectors underflow or overflow, so these are first scaled by a power of two, according
    to their largest entry. All others have the bits of :func:`torch.nn.functional.normalize`.
    """
    most, factor = _SAFE.get(vectors.dtype, (2.0**50, 2.0**100))
    largest = vectors.detach().abs().amax(-1, keepdim=True)
    factors = torch.ones_like(largest).masked_fill(largest < 1 / most, factor).masked_fill(largest > most, 1 / factor)
    scaled = vectors * factors
    lengths = scaled.norm(dim=-1, keepdim=True)
    return scaled / lengths.masked_fill(lengths == 0, torch.inf)


def without_direction(vectors_ND: Tensor) -> str:
    """Return a clause on the vectors that are zero or not finite: how many, and the first; empty if there is none."""
    bad_N = (vectors_ND.isfinite().logical_not() | (vectors_ND == 0).all(1, keepdim=True)).any(1)
    if not bad_N.any():  # waits for the device
        return ""
    rows = bad_N.nonzero().flatten()
    what = "zero" if vectors_ND[rows[0]].isfinite().all() else "not finite"
    return f"{len(rows)} of {len(vectors_ND)} embeddings are zero or not finite (row {int(rows[0])} is {what})"
