"""Adam and AdamW, for one training and for a stack of trainings.

torch's optimizers import ``torch._dynamo`` when they are constructed and at every step, only to mark themselves as not
compiled: two seconds of every worker's start, and 160 MB. Nothing is compiled here, so ``Adam`` and ``AdamW`` use the
methods without those wrappers. A method that has no wrapper in some version of torch is used unchanged.

Shapes: M members of a stack, P parameter values of a group in a row, T steps of an epoch, G groups.
"""

from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
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


STATE = ("exp_avg", "exp_avg_sq")


class StackedGroup:
    """A parameter group of M optimizers, one row per member, so that a step is a few operations for all of them.

    Each member has its own rate, decay, gradient bound and number of steps. ``leaves`` are the parameters, each
    [M, …], in the order of the group: views of the rows, which steps change in-place. The members' optimizer state is
    copied in, and copied back by :meth:`write_back`.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], number: int, clips: Sequence[float | None]) -> None:
        self._optimizers = optimizers
        self._groups = [optimizer.param_groups[number] for optimizer in optimizers]
        self._learning = [[p for p in group["params"] if p.requires_grad] for group in self._groups]
        shapes = [parameter.shape for parameter in self._learning[0]]
        assert all([p.shape for p in learning] == shapes for learning in self._learning), "groups of different shapes"
        self._ends = [0]
        for shape in shapes:
            self._ends.append(self._ends[-1] + shape.numel())
        self._values_MP = torch.stack([_row(learning) for learning in self._learning])
        self.leaves = [
            self._values_MP[:, start:end].view(len(optimizers), *shape).detach().requires_grad_()
            for (start, end), shape in zip(pairwise(self._ends), shapes)
        ]
        self._moments = [
            torch.stack([_row([self._state(m, p, name) for p in self._learning[m]]) for m in range(len(optimizers))])
            for name in STATE
        ]
        self._done_M = torch.tensor([self._steps_done(m) for m in range(len(optimizers))], dtype=torch.float64)
        self._decoupled = isinstance(optimizers[0], AdamW)
        like = self._values_MP
        self._decay_M1 = _column([group["weight_decay"] for group in self._groups], like)
        bounds = [float("inf") if clip is None else clip for clip in clips]
        self._clip_M1 = _column(bounds, like) if min(bounds) < float("inf") else None
        self._betas, self._eps = self._groups[0]["betas"], self._groups[0]["eps"]

    def _state(self, member: int, parameter: nn.Parameter, name: str) -> Tensor:
        state = self._optimizers[member].state.get(parameter)
        value: Tensor = state[name] if state else torch.zeros_like(parameter)
        return value

    def _steps_done(self, member: int) -> float:
        states = [self._optimizers[member].state.get(parameter) for parameter in self._learning[member]]
        (done,) = {float(state["step"]) if state else 0.0 for state in states}
        return done

    def begin(self, lr_TM: Tensor) -> None:
        """Compute the factors of the next T steps, at these rates, in float64 as torch does, and send them once."""
        step_TM = self._done_M + torch.arange(1, len(lr_TM) + 1, dtype=torch.float64)[:, None]
        sizes_TM = lr_TM / (1 - self._betas[0] ** step_TM)
        roots_TM = (1 - self._betas[1] ** step_TM).sqrt()
        kept_TM = 1 - lr_TM * torch.tensor([group["weight_decay"] for group in self._groups], dtype=torch.float64)
        self._sizes_TM1, self._roots_TM1, self._kept_TM1 = (
            part[:, :, None].to(self._values_MP) for part in (sizes_TM, roots_TM, kept_TM)
        )
        self._taken = 0

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> None:
        """Take a step with ``gradients``, each [M, …], of ``leaves``."""
        gradient_MP = torch.cat([gradient.reshape(len(gradient), -1) for gradient in gradients], dim=1)
        if self._clip_M1 is not None:
            gradient_MP.clamp_(-self._clip_M1, self._clip_M1)
        if self._decoupled:
            self._values_MP.mul_(self._kept_TM1[self._taken])
        else:
            gradient_MP.addcmul_(self._values_MP, self._decay_M1)
        first_MP, second_MP = self._moments
        first_MP.lerp_(gradient_MP, 1 - self._betas[0])
        second_MP.mul_(self._betas[1]).addcmul_(gradient_MP, gradient_MP, value=1 - self._betas[1])
        root_MP = second_MP.sqrt().div_(self._roots_TM1[self._taken]).add_(self._eps)
        self._values_MP.sub_((first_MP * self._sizes_TM1[self._taken]).div_(root_MP))
        self._taken += 1

    @torch.no_grad()
    def write_back(self, member: int) -> None:
        """Copy a member's rows back to its parameters and its optimizer's state."""
        done = self._done_M[member].item() + self._taken
        for parameter, (start, end) in zip(self._learning[member], pairwise(self._ends)):
            parameter.copy_(self._values_MP[member, start:end].view_as(parameter))
            state: dict[str, Any] = self._optimizers[member].state[parameter]
            state["step"] = torch.tensor(done)
            for name, moments_MP in zip(STATE, self._moments):
                if name not in state:
                    state[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                state[name].copy_(moments_MP[member, start:end].view_as(parameter))


class StackedOptimizer:
    """One optimizer of M members, over the groups with parameters that require gradients.

    ``clips`` bound each entry of a member's gradients (None: unbounded).
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], clips: Sequence[float | None]) -> None:
        self._optimizers = optimizers
        self._numbers = [
            number
            for number, group in enumerate(optimizers[0].param_groups)
            if any(parameter.requires_grad for parameter in group["params"])
        ]
        self._groups = [StackedGroup(optimizers, number, clips) for number in self._numbers]
        self._leaves = [leaf for group in self._groups for leaf in group.leaves]

    def learning(self) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Return the learning parameters of the first member, each with the stack [M, …] of all members'."""
        parameters = [p for group in self._optimizers[0].param_groups for p in group["params"] if p.requires_grad]
        return zip(parameters, self._leaves, strict=True)

    def begin(self, lr_TMG: Tensor) -> None:
        """Prepare for T steps at the learning rates of each member's G groups, float64."""
        for number, group in zip(self._numbers, self._groups):
            group.begin(lr_TMG[:, :, number])

    def step(self, losses_M: Tensor) -> None:
        """Take a step down each member's loss; no member's loss depends on another's parameters."""
        gradients = list(torch.autograd.grad(losses_M.sum(), self._leaves))
        for group in self._groups:
            group.step(gradients[: len(group.leaves)])
            del gradients[: len(group.leaves)]

    def write_back(self, member: int) -> None:
        """Copy a member's rows back to its parameters and its optimizer's state."""
        self._optimizers[member].zero_grad(set_to_none=True)
        for group in self._groups:
            group.write_back(member)


def _row(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
