"""The interface of a loss, the operations that losses share, and the domains of their parameters."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    from torch import Tensor


# What a loss has taken of a batch.

Unit = Literal["pairs", "triplets", "samples"]


@dataclass(frozen=True)
class Used:
    """So many pairs, triplets or samples, each as often as the loss sums it, those whose term is 0 too.

    ``count`` is a number that is known without asking the device, or else a whole 0-dim tensor on it: to read that
    would make a training step wait.
    """

    unit: Unit
    count: "int | Tensor"


def summed(batches: Iterable[Used | None]) -> dict[str, int]:
    """How many of each unit ``batches`` used together; nothing of those that do not say it. It waits for the device."""
    totals: dict[str, int | Tensor] = {}
    for used in batches:
        if used is not None:
            totals[used.unit] = totals.get(used.unit, 0) + used.count
    return {unit: int(total) for unit, total in totals.items()}


# The operations that the losses are written in: unit vectors, class masks, safe exponentials, reductions.
#
# Shapes: B batch, D embedding, any trailing shape as ``...``.

Reduction = Literal["mean", "sum"]
"""What is made of a loss's terms: "sum" is the sum that the papers print, "mean" divides it by the number of terms.

A factor of the loss does not change the steps of Adam and AdamW (but for an epsilon of 1e-8), so a paper's learning
rate holds for either; an optimiser without such a scale would want it multiplied by the number of terms. What the
factor does change is whatever is weighed against the gradient. A mean's is as many times smaller as there are terms, so
Adam's weight decay (AdamW's is beside the gradient), regularisers and an optimiser's larger epsilon weigh that much
more against it, and ``training.clip_grad`` bounds less of it.
"""
REDUCTIONS: tuple[str, ...] = get_args(Reduction)


def promoted(vectors: torch.Tensor) -> torch.Tensor:
    """``vectors`` in float32 at least: in bfloat16 a similarity is rounded by .78 of PNP's temperature."""
    return vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """``vectors`` [..., D] of length 1; a zero vector stays zero and gets no gradient."""
    lengths = vectors.norm(dim=-1, keepdim=True)
    return vectors / lengths.masked_fill(lengths == 0, torch.inf)


def cosines(embeddings_BD: torch.Tensor) -> torch.Tensor:
    """S_BB: the cosine similarity of every two embeddings."""
    unit_BD = unit(embeddings_BD)
    return unit_BD @ unit_BD.T


def same_and_different(labels_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Two masks [B, B]: the other samples of an anchor's class (never itself), and those of other classes."""
    same_BB = labels_B[:, None] == labels_B[None, :]
    itself_BB = torch.eye(len(labels_B), dtype=torch.bool, device=labels_B.device)
    return same_BB & ~itself_BB, ~same_BB


def masked_logsumexp(logits: torch.Tensor, keep: torch.Tensor, dim: int) -> torch.Tensor:
    """log Σ e^logit over the kept entries, with a most negative finite number for the empty sum.

    The empty sum is log 0; a finite stand-in keeps the gradient defined, and adding it to any similarity
    still gives an exponential of 0.
    """
    nothing = torch.finfo(logits.dtype).min / 4
    return logits.masked_fill(~keep, nothing).logsumexp(dim)


def log1p_sum_exp(logits: torch.Tensor, dim: int) -> torch.Tensor:
    """log(1 + Σ e^logit) with the 1 as an appended logit of 0; −∞ marks what is left out."""
    shape = list(logits.shape)
    shape[dim] = 1
    return torch.cat((logits, logits.new_zeros(shape)), dim).logsumexp(dim)


def reduced(total: torch.Tensor, terms: int | torch.Tensor, reduction: Reduction) -> torch.Tensor:
    """``total`` as it is, or divided by the number of terms that it sums (by 1 when it sums none)."""
    if reduction == "sum":
        return total
    return total / (terms.clamp(min=1) if isinstance(terms, torch.Tensor) else max(terms, 1))


# Checks of hyperparameters, each giving the sentences that are to be said (none when the value is right).


def real(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> list[str]:
    """A finite number within the bounds given; a truth value is not a number."""
    bounds = {"of at least": at_least, "above": above, "of at most": at_most, "below": below}
    rule = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(cast(float, value))
        if (
            math.isfinite(number)
            and (at_least is None or number >= at_least)
            and (above is None or number > above)
            and (at_most is None or number <= at_most)
            and (below is None or number < below)
        ):
            return []
    return [f"{name} must be a finite number{' ' if rule else ''}{rule}, not {value!r}: give one that is."]


def whole(name: str, value: object, *, at_least: int) -> list[str]:
    """A whole number of at least ``at_least``; 2.0 is not one, and neither is a truth value."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= at_least:
        return []
    return [f"{name} must be a whole number of at least {at_least}, not {value!r}: give one that is."]


def choice(name: str, value: object, options: Collection[object]) -> list[str]:
    """One of ``options``, which also tells 1 from True."""
    if any(type(value) is type(option) and value == option for option in options):
        return []
    return [f"{name} must be one of {', '.join(map(str, options))}, not {value!r}: name one of these."]


# What every loss is: a module of embeddings and labels that knows its learned parameters.
#
# Shapes: B batch, D embedding, C classes, K proxies a class.


class Loss(nn.Module, ABC):
    """``loss(embeddings_BD, labels_B)`` gives a scalar that is attached to the graph, whatever the batch.

    What is known of a built-in loss stands in its row of ``LOSSES`` and in ``SPACES``. One's own loss says it in class
    attributes: ``space``, its hyperparameters by name (:class:`spaces.space.Parameter`), and where they apply
    ``name``, ``paper``, ``equation`` and ``proxy_lr``, the learning rate of its proxies.

    A loss that mines, samples or sums plain pairs says in ``used`` what the last batch came to: ``compute`` sets it.
    It stays None where a loss always takes the whole batch, through proxies, a ranking or a logarithm of all.

    ``static_shapes`` says that in ``compute`` no shape depends on the values of a batch, that nothing is drawn, and
    that attributes of type float may be 0-dim tensors: then the losses of several trainings are computed as one
    (:mod:`trainables.training.stack`).
    """

    used: Used | None = None
    static_shapes: bool = False

    def forward(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """The loss of a batch: raw embeddings of any floating type, whole labels in [0, C), in any order."""
        with torch.autocast(embeddings_BD.device.type, enabled=False):  # it would halve the similarities' digits
            return self.compute(promoted(embeddings_BD), labels_B.long())

    @abstractmethod
    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> torch.Tensor:
        """The loss of a batch whose embeddings are of float32 at least."""

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """The learned parameters as groups for an optimiser, each with its own learning rate.

        A loss without parameters has no group, and one without proxies needs no ``proxy_lr``.
        """
        return []


class ProxyLoss(Loss):
    """A loss with one parameter ``proxies`` of shape [C, K, D], of which a loss of cosines uses the directions."""

    def __init__(self, *, num_classes: int, embedding_dim: int, proxies_per_class: int = 1) -> None:
        super().__init__()
        self.proxies = nn.Parameter(self.initial_proxies(num_classes, proxies_per_class, embedding_dim))

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> torch.Tensor:
        """The proxies before training [C, K, D]: N(0, 2/C), as in the code of Proxy-Anchor's authors.

        Only directions matter to a loss of cosines, but the length sets how far a step of Adam turns a proxy. So a loss
        whose authors begin otherwise, and whose learning rate goes with that, overrides this.
        """
        return (2 / num_classes) ** 0.5 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def similarities(self, embeddings_BD: torch.Tensor) -> torch.Tensor:
        """S_BC: the cosine similarity of every embedding to the first proxy of every class."""
        return proxy_cosines(unit(embeddings_BD), promoted(self.proxies[:, :1]))[0][0]

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """The proxies, at ``proxy_lr``.

        Raises:
            Mistakes: there is none.
        """
        if proxy_lr is None:
            raise Mistakes(
                f"training.proxy_lr is null, and {type(self).__name__} names no learning rate for its proxies: "
                "set training.proxy_lr, or give the class an attribute proxy_lr."
            )
        return [{"params": [self.proxies], "lr": proxy_lr}]


def sizes(num_classes: object, embedding_dim: object) -> list[str]:
    """The sentences about the two sizes that every loss is given."""
    return [
        *whole("num_classes", num_classes, at_least=1),
        *whole("embedding_dim", embedding_dim, at_least=1),
    ]


def proxy_cosines(unit_BD: torch.Tensor, proxies_CKD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """S_KBC = x_b·w_ck / |w_ck| and G_CKK = w_cs·w_ct / (|w_cs| |w_ct|), with gradients of first order.

    K comes first in S because sums over a last dimension of a few entries are slow. A proxy of length 0 has
    similarity 0 to everything and no gradient.
    """
    similarities_KBC, among_CKK, _ = _ProxyCosines.apply(unit_BD, proxies_CKD)
    return similarities_KBC, among_CKK


class _ProxyCosines(torch.autograd.Function):
    """The inputs may have further dimensions before those of their names, the same for both: so it is vmapped."""

    @staticmethod
    def forward(unit_BD: torch.Tensor, proxies_CKD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        products_CKK = proxies_CKD @ proxies_CKD.mT
        inverse_CK = products_CKK.diagonal(dim1=-2, dim2=-1).rsqrt()
        inverse_CK = inverse_CK.masked_fill(inverse_CK.isinf(), 0.0)
        among_CKK = products_CKK * inverse_CK[..., :, None] * inverse_CK[..., None, :]
        raw_BCK = (unit_BD @ proxies_CKD.flatten(-3, -2).mT).unflatten(-1, inverse_CK.shape[-2:])
        similarities_KBC = (raw_BCK.movedim(-1, -3) * inverse_CK.mT[..., None, :]).contiguous()
        return similarities_KBC, among_CKK, inverse_CK

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_KBC: torch.Tensor, grad_CKK: torch.Tensor, _: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        unit_BD, proxies_CKD, similarities_KBC, among_CKK, inverse_CK = ctx.saved_tensors
        scaled_BP = (grad_KBC * inverse_CK.mT[..., None, :]).movedim(-3, -1).flatten(-2)
        grad_unit_BD = scaled_BP @ proxies_CKD.flatten(-3, -2)
        grad_CKD = (scaled_BP.mT @ unit_BD).view_as(proxies_CKD)
        grad_CKK = grad_CKK + grad_CKK.mT
        # d(w/|w|) has no part along w: what S and G give along it is taken out again, on the diagonal
        radial_CK = (grad_KBC * similarities_KBC).sum(-2).mT + (grad_CKK * among_CKK).sum(-1)
        weights_CKK = grad_CKK * inverse_CK[..., :, None] * inverse_CK[..., None, :]
        weights_CKK.diagonal(dim1=-2, dim2=-1).sub_(inverse_CK.square() * radial_CK)
        grad_CKD.flatten(0, -3).baddbmm_(weights_CKK.flatten(0, -3), proxies_CKD.flatten(0, -3))
        return grad_unit_BD, grad_CKD

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *inputs: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        first = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(inputs, in_dims)
        ]
        return _ProxyCosines.apply(*first), (0, 0, 0)
