"""A loss's own function and its derivative, by autograd.

Shapes: P points.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray


class Curve(NamedTuple):
    """A function's values at some points, and its derivative there: float64 [P]."""

    value_P: NDArray[np.float64]
    slope_P: NDArray[np.float64]


def curve(function: Callable[[torch.Tensor], torch.Tensor], at_P: NDArray[np.float64]) -> Curve:
    """``function``, which works on each entry alone, at ``at_P``."""
    points_P = torch.tensor(at_P, dtype=torch.float64, requires_grad=True)
    value_P = function(points_P)
    (slope_P,) = torch.autograd.grad(value_P.sum(), points_P)
    return Curve(value_P.detach().numpy(), slope_P.numpy())
