"""Adam and AdamW.

torch's optimizers import ``torch._dynamo`` when they are constructed and at every step, only to mark themselves as not
compiled: two seconds of every worker's start, and 160 MB. Nothing is compiled here, so ``Adam`` and ``AdamW`` use the
methods without those wrappers. A method that has no wrapper in some version of torch is used unchanged.
"""

from collections.abc import Callable
from inspect import unwrap
from typing import Any

import torch
from torch.optim import Optimizer


def _step(optimizer: type[Optimizer]) -> Callable[..., Any]:
    """Return the optimizer's step without its wrapper, which also disables gradients."""
    return torch.no_grad()(unwrap(optimizer.step))


class _NotCompiled(Optimizer):
    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)


class Adam(_NotCompiled, torch.optim.Adam):
    """Adam (Kingma and Ba, 2015)."""

    step = _step(torch.optim.Adam)


class AdamW(_NotCompiled, torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    step = _step(torch.optim.AdamW)
