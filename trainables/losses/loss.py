"""Interface of a loss, operations that losses share, and checks of their params.

Shapes: B batch, D embedding, C classes, K proxies a class, any trailing shape as ``...``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from inspect import cleandoc, get_annotations
from typing import Annotated, Any, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from trainables.common.errors import InvalidInput, Mistake, raise_if_any
from trainables.common.rules import Bounds, Count, OneOf, rule_mistakes
from trainables.common.vectors import unit, unit_and_lengths
from trainables.losses import LOSSES

Unit = Literal["pairs", "triplets", "samples"]


@dataclass(frozen=True)
class Used:
    """Number of pairs, triplets or samples in the sum, zero terms included.

    ``count`` is an int if it is known without synchronising with the device, otherwise an integer 0-dim tensor on it:
    reading that would make a training step wait.
    """

    unit: Unit
    count: "int | Tensor"


def summed(batches: Iterable[Used | None]) -> dict[str, int]:
    """Sum the counts by unit, ignoring None. Synchronises with the device."""
    totals: dict[str, int | Tensor] = {}
    for used in batches:
        if used is not None:
            totals[used.unit] = totals.get(used.unit, 0) + used.count
    return {unit: int(total) for unit, total in totals.items()}


class Loss(nn.Module, ABC):
    """Scalar loss of a batch, attached to the graph for any batch: ``loss(embeddings_BD, labels_B)``.

    A built-in loss has a row in ``LOSSES`` and one in ``SPACES``. A user-defined loss has class attributes instead:
    ``space``, the ranges of its params by name, and optionally ``name``, ``paper``, ``equation`` and ``proxy_lr``, the
    learning rate of its proxies.

    A loss that mines, samples or sums plain pairs reports the size of the last batch's sum: ``compute`` sets ``used``.
    It stays None for a loss that always uses the whole batch (by proxies, a ranking, or a logarithm of a sum over all).

    ``most_pairs`` is at least the number of pairs of an anchor and a positive in a batch. A training knows it from the
    labels; where it is None, a loss that mines or sums over such pairs makes the host wait for the device.
    """

    to_derive = (
        " (`class Mine(holdout.parts.Loss)` with `space = {}` or ranges, `def __init__(self, *, num_classes, "
        "embedding_dim, …)`, and `compute` in place of `forward`)"
    )
    """What turns a module into a loss, for errors."""
    used: Used | None = None
    most_pairs: int | None = None

    def forward(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss of raw embeddings of any floating type and integer labels in [0, C), in any order.

        Raises:
            InvalidInput: they are not of the shapes [B, D] and [B], or labels are not whole numbers.
        """
        if embeddings_BD.ndim != 2 or labels_B.shape != embeddings_BD.shape[:1] or labels_B.is_floating_point():
            raise InvalidInput(
                f"A loss takes embeddings [B, D] and labels [B], whole numbers; here {list(embeddings_BD.shape)} and "
                f"{list(labels_B.shape)} of {labels_B.dtype}."
            )
        with torch.autocast(embeddings_BD.device.type, enabled=False):  # it would halve the precision of similarities
            return self.compute(promoted(embeddings_BD), labels_B.long())

    @abstractmethod
    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        """Return the loss of embeddings in float32 or float64 and labels in int64."""

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return the learned parameters as optimizer groups, each with its own learning rate.

        A loss without parameters has no groups; a loss without proxies ignores ``proxy_lr``.
        """
        return []

    def __post_init__(self) -> None:
        """Check the params of a built-in loss, which are its attributes, and prepare it."""
        raise_if_any(rule_mistakes(self))
        nn.Module.__init__(self)
        self.prepare()

    def prepare(self) -> None:
        """Make what a built-in loss needs besides its params."""


class ProxyLoss(Loss):
    """Loss with one parameter ``proxies`` of shape [C, K, D]; a loss of cosines uses only their directions."""

    num_classes: int
    embedding_dim: int
    proxies_per_class: int = 1

    def __init__(self, *, num_classes: int, embedding_dim: int, proxies_per_class: int = 1) -> None:
        super().__init__()
        self.num_classes, self.embedding_dim, self.proxies_per_class = num_classes, embedding_dim, proxies_per_class
        ProxyLoss.prepare(self)

    def prepare(self) -> None:
        self.proxies = nn.Parameter(self.initial_proxies(self.num_classes, self.proxies_per_class, self.embedding_dim))

    @staticmethod
    def initial_proxies(num_classes: int, proxies_per_class: int, embedding_dim: int) -> Tensor:
        """Return initial proxies [C, K, D]: N(0, 2/C), as in the code of Proxy-Anchor's authors.

        Only directions matter to a loss of cosines, but the length determines how far a step of Adam turns a proxy.
        A loss whose authors initialise differently, with a learning rate chosen for it, overrides this.
        """
        return (2 / num_classes) ** 0.5 * torch.randn(num_classes, proxies_per_class, embedding_dim)

    def similarities(self, embeddings_BD: Tensor) -> Tensor:
        """Return S_BC, the cosine similarity of each embedding to the first proxy of each class."""
        return proxy_cosines(embeddings_BD, promoted(self.proxies[:, :1]))[0][0]

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        """Return one group: the proxies, at ``proxy_lr``, which is needed."""
        if proxy_lr is None:
            raise InvalidInput(
                f"training.proxy_lr is null, and {type(self).__name__} names no learning rate for its proxies: "
                "set training.proxy_lr, or give the class an attribute proxy_lr."
            )
        return [{"params": [self.proxies], "lr": proxy_lr}]


SAME_PROXY = 0.1
"""Distance of two proxies of unit length up to which they count as one: gamma in Saeki et al., section 4.2.

For any image their logits x·w/gamma in eq. 1 differ by at most 1, so the softmax barely distinguishes them.
"""


def distinct_proxies(proxies_CKD: Tensor) -> float:
    """Return the mean number of distinct proxies of a class, from 1 to K.

    Proxies of a class at most :data:`SAME_PROXY` apart count as one, as do those connected by a chain of such pairs.
    Saeki et al., section 4.4, expect as many as a class has local centres.
    """
    total = 0
    for part_CKD in proxies_CKD.detach().split(1024):  # in float64, whose copy of all proxies may be large
        unit_CKD = unit(part_CKD.double())
        linked_CKK = unit_CKD @ unit_CKD.mT >= 1 - SAME_PROXY**2 / 2
        for _ in range(max(1, part_CKD.shape[1] - 1).bit_length()):  # each doubles the length of the chains
            linked_CKK = linked_CKK.float() @ linked_CKK.float() > 0
        total += int((~linked_CKK.tril(-1).any(-1)).sum())  # the first proxy of each cluster
    return total / len(proxies_CKD)


AnyLoss = TypeVar("AnyLoss", bound=Loss)


def declared(name: str) -> Callable[[type[AnyLoss]], type[AnyLoss]]:
    """Complete a built-in loss class, which annotates its params with their rules, from its row of ``LOSSES``.

    It becomes a dataclass whose constructor checks its params and calls ``prepare``. Defaults, paper and equation are
    those of the row, so that each is written once and can be read without importing torch.
    """
    row = LOSSES.rows[name]

    def complete(loss: type[AnyLoss]) -> type[AnyLoss]:
        hints = {param: hint for part in reversed(loss.__mro__) for param, hint in get_annotations(part).items()}
        params = {param: hint for param, hint in hints.items() if param in row.defaults or param == "reduction"}
        loss.__annotations__ = {"num_classes": Count, "embedding_dim": Count, **params}
        loss.__doc__ = f"{row.paper}: {row.equation}\n\n{cleandoc(loss.__doc__ or '')}"
        for param, default in row.defaults.items():
            setattr(loss, param, default)
        dataclass(kw_only=True, eq=False, repr=False)(loss)
        for param in row.defaults:
            delattr(loss, param)  # it would hide a parameter of this name
        return loss

    return complete


# Operations: class masks, numerically safe exponentials, reductions.

Reduction = Literal["mean", "sum"]
"""Reduction of a loss's terms: "sum" as printed in the papers, "mean" divides it by the number of terms.

A constant factor does not change the steps of Adam and AdamW (except for an epsilon of 1e-8), so a paper's learning
rate is valid for either. It matters to anything added to or compared with the gradient: with the mean, Adam's weight
decay (AdamW's is decoupled) and regularisers weigh more by the number of terms, and ``training.clip_grad`` clips less.
"""


def promoted(vectors: Tensor) -> Tensor:
    """Return ``vectors`` in float32 at least: bfloat16 rounds a similarity by .78 of PNP's temperature."""
    return vectors.float() if vectors.dtype in (torch.float16, torch.bfloat16) else vectors


def cosines(embeddings_BD: Tensor) -> Tensor:
    """Return S_BB, the cosine similarity of each pair of embeddings, with first-order gradients."""
    return _Cosines.apply(embeddings_BD)


class _Cosines(torch.autograd.Function):
    """Similarities with half of the products and a third of the kernels of their automatic gradient."""

    @staticmethod
    def forward(ctx: Any, embeddings_BD: Tensor) -> Tensor:
        unit_BD, lengths_B1 = unit_and_lengths(embeddings_BD)
        ctx.save_for_backward(unit_BD, lengths_B1)
        return unit_BD @ unit_BD.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BB: Tensor) -> Tensor:
        unit_BD, lengths_B1 = ctx.saved_tensors
        return _of_raw((grad_BB + grad_BB.T) @ unit_BD, unit_BD, lengths_B1)


def _of_raw(grad_BD: Tensor, unit_BD: Tensor, lengths_B1: Tensor) -> Tensor:
    """Return the gradient of vectors from that of their unit vectors, without its part along them."""
    along_B1 = (grad_BD * unit_BD).sum(1, keepdim=True)
    return torch.addcmul(grad_BD, unit_BD, along_B1, value=-1).div_(lengths_B1)


def same_and_different(labels_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return two masks [B, B]: other samples of the anchor's class (never itself), and samples of other classes."""
    same_BB, different_BB = labels_B[:, None] == labels_B, labels_B[:, None] != labels_B
    return same_BB.fill_diagonal_(False), different_BB


def masked_logsumexp(logits: Tensor, keep: Tensor, dim: int) -> Tensor:
    """Compute log Σ e^logit over the kept entries; an empty sum gives a very negative finite number.

    It keeps the gradient defined, and with any similarity added it still has an exponential of 0.
    """
    nothing = torch.finfo(logits.dtype).min / 4
    kept = torch.where(keep, logits, nothing)
    most = kept.detach().amax(dim, keepdim=True)
    return (kept - most).exp().sum(dim).log() + most.squeeze(dim)


def log1p_sum_exp(logits: Tensor, dim: int) -> Tensor:
    """Compute log(1 + Σ e^logit), the 1 as an appended logit of 0; entries of −∞ are excluded.

    It is minus the log-softmax of the appended logit, which is one kernel, where a logsumexp is nine.
    """
    shape = list(logits.shape)
    shape[dim] = 1
    return -torch.cat((logits, logits.new_zeros(shape)), dim).log_softmax(dim).select(dim, -1)


def masked_sum(terms: Tensor, keep: Tensor) -> Tensor:
    """Return the sum of the kept terms, which must be finite where they are not kept, too."""
    return (terms * keep).sum()


def reduced(total: Tensor, terms: int | Tensor, reduction: Reduction) -> Tensor:
    """Return ``total``, for "mean" divided by its number of terms (by 1 if there are no terms)."""
    if reduction == "sum":
        return total
    return total / (terms.clamp(min=1) if isinstance(terms, Tensor) else max(terms, 1))


def proxy_cosines(embeddings_BD: Tensor, proxies_CKD: Tensor) -> tuple[Tensor, Tensor]:
    """Compute S_KBC = x_b·w_ck / (|x_b| |w_ck|) and G_CKK = w_cs·w_ct / (|w_cs| |w_ct|), with first-order gradients.

    K is the first dimension of S because sums over a short last dimension are slow. A proxy of length 0 has
    similarity 0 to everything and no gradient.
    """
    return _ProxyCosines.apply(embeddings_BD, proxies_CKD)


class _ProxyCosines(torch.autograd.Function):
    """Similarities to proxies without a normalised copy of them.

    With tens of thousands of proxies such a copy and its gradient cost as much as the matrix products themselves. Here
    the products use the proxies as they are, and lengths and radial gradients are corrected on the small matrices.
    """

    @staticmethod
    def forward(ctx: Any, embeddings_BD: Tensor, proxies_CKD: Tensor) -> tuple[Tensor, Tensor]:
        unit_BD, lengths_B1 = unit_and_lengths(embeddings_BD)
        products_CKK = proxies_CKD @ proxies_CKD.mT
        inverse_CK = products_CKK.diagonal(dim1=1, dim2=2).rsqrt().nan_to_num_(nan=torch.nan, posinf=0.0)
        inverse_CKK = inverse_CK[:, :, None] * inverse_CK[:, None, :]
        among_CKK = products_CKK.mul_(inverse_CKK)
        raw_BCK = (unit_BD @ proxies_CKD.flatten(0, 1).T).unflatten(1, inverse_CK.shape)
        similarities_KBC = (raw_BCK.permute(2, 0, 1) * inverse_CK.T[:, None]).contiguous()
        ctx.save_for_backward(unit_BD, lengths_B1, proxies_CKD, similarities_KBC, among_CKK, inverse_CK, inverse_CKK)
        return similarities_KBC, among_CKK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_KBC: Tensor, grad_CKK: Tensor) -> tuple[Tensor, Tensor]:
        unit_BD, lengths_B1, proxies_CKD, similarities_KBC, among_CKK, inverse_CK, inverse_CKK = ctx.saved_tensors
        scaled_BP = (grad_KBC * inverse_CK.T[:, None]).permute(1, 2, 0).flatten(1)
        grad_unit_BD = scaled_BP @ proxies_CKD.flatten(0, 1)
        grad_CKD = (scaled_BP.T @ unit_BD).view_as(proxies_CKD)
        grad_CKK = grad_CKK + grad_CKK.mT
        # d(w/|w|) has no component along w: remove that of S and G again, on the diagonal
        radial_CK = (grad_KBC * similarities_KBC).sum(1).T + (grad_CKK * among_CKK).sum(2)
        weights_CKK = grad_CKK * inverse_CKK
        weights_CKK.diagonal(dim1=1, dim2=2).addcmul_(inverse_CKK.diagonal(dim1=1, dim2=2), radial_CK, value=-1)
        return _of_raw(grad_unit_BD, unit_BD, lengths_B1), grad_CKD.baddbmm_(weights_CKK, proxies_CKD)


# Checks of params: each returns a list of error sentences, empty if the value is valid.


def real(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
) -> list[Mistake]:
    """Check for a finite number within the bounds; a bool is not a number."""
    return Bounds(ge=at_least, gt=above, le=at_most, lt=below).mistakes(name, value)


def whole(name: str, value: object, *, at_least: int) -> list[Mistake]:
    """Check for an integer of at least ``at_least``; neither 2.0 nor a bool is one."""
    return Bounds(ge=at_least, whole=True).mistakes(name, value)


def choice(name: str, value: object, options: Collection[object]) -> list[Mistake]:
    """Check for one of ``options``; 1 is not True."""
    return OneOf(options).mistakes(name, value)


Cosine = Annotated[float, Bounds(ge=-1, le=1)]
Reduced = Annotated[Reduction, OneOf(get_args(Reduction))]


def sizes(num_classes: object, embedding_dim: object) -> list[Mistake]:
    """Check the two sizes that every loss takes."""
    return [*whole("num_classes", num_classes, at_least=1), *whole("embedding_dim", embedding_dim, at_least=1)]
