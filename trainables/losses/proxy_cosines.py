"""Cosine similarities to proxies, and among those of a class, without ever storing normalised proxies.

With tens of thousands of proxies a normalised copy and its gradient cost as much as the matrix products themselves.
Here the products take the proxies as they are; lengths and radial gradients are set right on the small matrices.

Shapes: B batch, D embedding, C classes, K proxies a class.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable


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
