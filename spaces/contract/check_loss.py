"""Contract of a loss, built-in or user-defined. Shapes: B batch, D embedding."""

import inspect
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, get_args

import torch
from torch import Tensor

from spaces.contract import Check, ends_problem
from spaces.losses import declared_space
from spaces.space import Choice, Space, Value
from trainables.losses import LOSSES, loss_part, loss_row
from trainables.losses.loss import Loss, Unit, Used

CLASSES, DIMENSIONS = 12, 16

SHARP = {"scale": 100.0, "pos_scale": 100.0, "neg_scale": 100.0, "temperature": 0.01, "gamma": 0.01}
"""Params that make exponentials large."""

GENTLE = {"temperature": 0.2}
"""Params for which the curvature is low enough for finite differences."""

GIVEN = ("num_classes", "embedding_dim")

MAKES = {"one class": [7] * 6, "singletons": [0, 3, 5, 11], "one image": [4], "a pair and a singleton": [2, 2, 9]}


class LossContract:
    """The checks of a loss (name or import path)."""

    def __init__(self, loss: str) -> None:
        part = loss_part(loss)
        self._class = LOSSES[part.key]
        self._space: Space = declared_space(part)
        self._proxy_lr = loss_row(part.key).proxy_lr
        self._arguments = inspect.signature(self._class).parameters

    def checks(self) -> Mapping[str, Check]:
        precisions = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
        return {
            "Its space names its params.": self._space_problem,
            "Its defaults build.": self._default_problem,
            "Both ends of every range and every choice build.": partial(ends_problem, self._space, self._built),
            "Its parameters are learned, each at a learning rate.": self._groups_problem,
            **{
                f"It is finite at scale 100 in {words}, and so are its gradients.": partial(self._sharp_problem, dtype)
                for dtype, words in precisions.items()
            },
            "It is finite for embeddings that have collapsed.": self._collapsed_problem,
            "It is finite for embeddings parallel to its proxies.": self._proxies_problem,
            **{
                f"It is finite and attached to the graph for a batch of {make}.": partial(self._make_problem, labels)
                for make, labels in MAKES.items()
            },
            "It does not depend on the order of a batch.": self._order_problem,
            "Half precision is computed in float32.": self._half_problem,
            "Its state_dict is complete.": self._state_problem,
            "It reports used pairs, triplets or samples.": self._used_problem,
            "Its gradients agree with finite differences.": self._gradient_problem,
        }

    def _built(
        self, params: Mapping[str, Any] | None = None, *, classes: int = CLASSES, dimensions: int = DIMENSIONS
    ) -> Loss:
        return self._class(num_classes=classes, embedding_dim=dimensions, **(params or {}))

    def _space_problem(self) -> str:
        if absent := [name for name in GIVEN if name not in self._arguments]:
            return f"Its constructor has no argument {' and no '.join(absent)}: add it as a keyword."
        if absent := [name for name in self._space if name not in self._arguments]:
            return f"Its space names {', '.join(absent)}, which its constructor does not take: add an argument."
        seen: set[str] = set()
        for name, parameter in self._space.items():
            if later := set(parameter.when) - seen:
                return f"{name} depends on {', '.join(sorted(later))}, which must come before it in the space."
            seen.add(name)
        return ""

    def _default_problem(self) -> str:
        self._built({name: parameter.default for name, parameter in self._space.items()})
        return ""

    def _groups_problem(self) -> str:
        loss = self._built()
        groups = loss.parameter_groups(self._proxy_lr)
        learned = [id(parameter) for group in groups for parameter in group["params"]]
        if sorted(learned) != sorted(id(parameter) for parameter in loss.parameters()):
            return f"parameter_groups has {len(learned)} parameters, and the loss has {len(list(loss.parameters()))}."
        if not all(group["lr"] > 0 for group in groups):
            return "A group of parameter_groups has no positive learning rate: set its lr."
        if self._proxy_lr is None:
            return ""
        proxies = getattr(loss, "proxies", None)
        if proxies is None or proxies.ndim != 3 or (len(proxies), proxies.shape[2]) != (CLASSES, DIMENSIONS):
            return "It has a proxy_lr, and no parameter proxies of shape [classes, proxies a class, dimensions]."
        (first, *_), (other, *_) = groups, loss.parameter_groups(0.5)
        if first["lr"] != self._proxy_lr or other["lr"] != 0.5:
            return "parameter_groups does not pass its argument proxy_lr to its proxies as lr."
        return ""

    def _sharp_problem(self, dtype: torch.dtype) -> str:
        loss = self._built(self._accepted(SHARP), classes=100, dimensions=64)
        generator = torch.Generator().manual_seed(1)
        return finite_problem(loss, torch.randn(384, 64, generator=generator).to(dtype), torch.arange(384) % 96)

    def _collapsed_problem(self) -> str:
        labels_B = torch.arange(384) % 96
        loss = self._built(self._accepted(SHARP), classes=100, dimensions=64)
        for dtype in (torch.float32, torch.bfloat16):
            for value in (1.0, 0.0, -3e-5):
                if problem := finite_problem(loss, torch.full((384, 64), value, dtype=dtype), labels_B):
                    return f"If all embeddings are {value} in {dtype}: {problem}"
        return ""

    def _proxies_problem(self) -> str:
        """Check similarities of exactly ±1, where angles and roots have no gradient."""
        loss = self._built()
        embeddings_BD = torch.randn(CLASSES, DIMENSIONS)
        for parameter in loss.parameters():
            if parameter.ndim == 3:
                parameter.data = -embeddings_BD[:, None].repeat(1, parameter.shape[1], 1)
                parameter.data[::2] *= -2
        return finite_problem(loss, embeddings_BD, torch.arange(CLASSES))

    def _make_problem(self, labels: list[int]) -> str:
        loss, embeddings_BD, labels_B = self._built(), torch.randn(len(labels), DIMENSIONS), torch.tensor(labels)
        value = _value(loss, embeddings_BD, labels_B).item()
        if 1e6 < abs(value) < math.inf:  # a mask's filler was summed
            return f"The loss is {value:.6g} for {_labels(labels_B)}: leave out anchors without a pair."
        return finite_problem(loss, embeddings_BD, labels_B)

    def _order_problem(self) -> str:
        params = self._without_chance()
        if params is None:
            return ""  # always random, so no two values can be compared
        loss = self._built(params).double()
        for batch in range(2, 15):
            embeddings_BD = torch.randn(batch, DIMENSIONS, dtype=torch.float64)
            labels_B, order_B = torch.randint(0, 6, (batch,)), torch.randperm(batch)
            first, second = embeddings_BD.clone().requires_grad_(), embeddings_BD[order_B].requires_grad_()
            value, permuted = loss(first, labels_B), loss(second, labels_B[order_B])
            if not torch.allclose(value, permuted, rtol=1e-9, atol=1e-9):
                return f"The loss of {_labels(labels_B)} is {value.item()}, and {permuted.item()} in another order."
            (grad_BD,), (permuted_BD,) = torch.autograd.grad(value, first), torch.autograd.grad(permuted, second)
            if not torch.allclose(permuted_BD, grad_BD[order_B], rtol=1e-6, atol=1e-7):
                return "The gradient changes with the batch in another order."
        return ""

    def _half_problem(self) -> str:
        loss = self._built(self._without_chance())
        embeddings_BD, labels_B = torch.randn(20, DIMENSIONS).bfloat16(), torch.arange(20) % 5
        plain = _value(loss, embeddings_BD, labels_B)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = _value(loss, embeddings_BD, labels_B)
        if plain.dtype != torch.float32:
            return f"For embeddings in bfloat16 it is {plain.dtype}: override compute, not forward."
        for value, where in ((plain, "in bfloat16"), (inside, "inside autocast")):
            if not torch.allclose(value, _value(loss, embeddings_BD.float(), labels_B), rtol=1.3e-6, atol=1e-5):
                return f"Its value {where} differs from that in float32: override compute, not forward."
        dtype = _value(loss.double(), embeddings_BD.double(), labels_B).dtype
        return "" if dtype == torch.float64 else f"For embeddings in float64 it is {dtype}: keep their dtype."

    def _state_problem(self) -> str:
        first, second = self._built(), self._built()
        second.load_state_dict(first.state_dict())
        pairs = zip(first.parameters(), second.parameters(), strict=True)
        return "" if all(torch.equal(*pair) for pair in pairs) else "A parameter is not in its state_dict."

    def _used_problem(self) -> str:
        loss = self._built()
        _value(loss, torch.randn(10, DIMENSIONS), torch.arange(10) % 4)
        used: object = loss.used
        if used is None:
            return ""
        if not isinstance(used, Used) or used.unit not in get_args(Unit):
            return f"Its attribute used is {used!r}: leave it None, or set a Used of {', '.join(get_args(Unit))}."
        count = torch.as_tensor(used.count)
        if count.shape != () or count.is_floating_point() or count.requires_grad:
            return f"The count in its attribute used is {used.count!r}: give an integer, or an integer 0-dim tensor."
        return ""

    def _gradient_problem(self) -> str:
        labels_B = torch.tensor([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4])
        embeddings_BD = torch.randn(len(labels_B), DIMENSIONS, dtype=torch.float64, requires_grad=True)
        loss = self._built({**(self._without_chance() or {}), **self._accepted(GENTLE)}).double()
        agree = torch.autograd.gradcheck(
            lambda x, *_: _value(loss, x, labels_B),
            (embeddings_BD, *loss.parameters()),
            atol=1e-6,
            fast_mode=True,
            raise_exception=False,
        )
        if agree:
            return ""
        value = _value(loss, embeddings_BD, labels_B)
        (gradient_BD,) = torch.autograd.grad(value, embeddings_BD)
        along_BD, step = torch.randn(gradient_BD.shape, generator=torch.Generator().manual_seed(1)).double(), 1e-6
        above, below = (_value(loss, embeddings_BD.detach() + sign * step * along_BD, labels_B) for sign in (1, -1))
        return (
            f"For the labels {labels_B.tolist()} its value is {value.item():.6g}. Along a random direction of the "
            f"embeddings it rises by {((above - below) / (2 * step)).item():.6g}, and by its gradient, "
            f"{(gradient_BD * along_BD).sum().item():.6g}: check for detached or rounded tensors."
        )

    def _accepted(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the ``values`` that this loss accepts as params."""
        accepted = {}
        for name in values.keys() & self._arguments.keys():
            try:
                self._built({name: values[name]})
            except ValueError:
                continue
            accepted[name] = values[name]
        return accepted

    def _without_chance(self) -> dict[str, Value] | None:
        """Return params for which the loss is deterministic, or None."""
        choices = [
            {name: choice}
            for name, parameter in self._space.items()
            if isinstance(parameter, Choice)
            for choice in parameter.choices
        ]
        embeddings_BD, labels_B = torch.randn(24, DIMENSIONS), torch.arange(24) % 6
        for params in [{}, *choices]:
            loss = self._built(params)
            values = {_value(loss, embeddings_BD, labels_B, seed=seed).item() for seed in range(3)}
            if len(values) == 1:
                return params
        return None


def _value(loss: Loss, embeddings_BD: Tensor, labels_B: Tensor, seed: int = 0) -> Tensor:
    """Return the loss of a batch, with torch seeded."""
    torch.manual_seed(seed)
    return loss(embeddings_BD, labels_B)


def finite_problem(loss: Loss, embeddings_BD: Tensor, labels_B: Tensor) -> str:
    """Check that the value and the gradients of a batch are finite."""
    embeddings_BD = embeddings_BD.clone().requires_grad_()
    value = loss(embeddings_BD, labels_B)
    if value.shape != ():
        return f"The loss has the shape {list(value.shape)}: return a scalar."
    if not value.isfinite():
        return f"The loss is {value.item()} for {_labels(labels_B)}."
    if value.requires_grad:
        value.backward()
    if embeddings_BD.grad is None:
        return "The loss is not attached to the graph: compute its value from the embeddings for any batch."
    if not embeddings_BD.grad.isfinite().all():
        return (
            f"The value is {value.item():.6g} for {_labels(labels_B)}, and the gradient of the embeddings not finite."
        )
    if not all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in loss.parameters()):
        return "The gradient of a parameter is not finite."
    return ""


def _labels(labels_B: Tensor) -> str:
    shown = labels_B.tolist()
    return (
        f"the labels {shown}" if len(shown) <= 2 * CLASSES else f"{len(shown)} embeddings of {len(set(shown))} classes"
    )
