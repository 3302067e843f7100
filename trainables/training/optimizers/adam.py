"""Adam and AdamW as torch computes them, without loading torch's compiler.

torch's optimisers load ``torch._dynamo`` when they are made and at every step, only to say that they are not to be
compiled: two seconds of every worker's start, and 160 MB. Nothing is compiled here, so the methods are taken without
those wrappers. A method that has none in some version of torch is taken as it is.
"""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch.optim import Optimizer


def _step(optimizer: type[Optimizer]) -> Callable[..., Any]:
    """The optimiser's step, whose wrapper also turns gradients off."""
    return torch.no_grad()(unwrap(optimizer.step))


class _NotCompiled(Optimizer):
    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class Adam(_NotCompiled, torch.optim.Adam):
    """Kingma and Ba, 2015."""

    step = _step(torch.optim.Adam)


class AdamW(_NotCompiled, torch.optim.AdamW):
    """Loshchilov and Hutter, 2019: Adam with weight decay beside the gradient."""

    step = _step(torch.optim.AdamW)
