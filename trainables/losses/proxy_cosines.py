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
    similarities_KBC, among_CKK = _ProxyCosines.apply(unit_BD, proxies_CKD)
    return similarities_KBC, among_CKK


class _ProxyCosines(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, unit_BD: torch.Tensor, proxies_CKD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        products_CKK = proxies_CKD @ proxies_CKD.mT
        inverse_CK = products_CKK.diagonal(dim1=1, dim2=2).rsqrt()
        inverse_CK = inverse_CK.masked_fill(inverse_CK.isinf(), 0.0)
        among_CKK = products_CKK * inverse_CK[:, :, None] * inverse_CK[:, None, :]
        raw_BCK = (unit_BD @ proxies_CKD.flatten(0, 1).T).unflatten(1, inverse_CK.shape)
        similarities_KBC = (raw_BCK.permute(2, 0, 1) * inverse_CK.T[:, None]).contiguous()
        ctx.save_for_backward(unit_BD, proxies_CKD, similarities_KBC, among_CKK, inverse_CK)
        return similarities_KBC, among_CKK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_KBC: torch.Tensor, grad_CKK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        unit_BD, proxies_CKD, similarities_KBC, among_CKK, inverse_CK = ctx.saved_tensors
        scaled_BP = (grad_KBC * inverse_CK.T[:, None]).permute(1, 2, 0).flatten(1)
        grad_unit_BD = scaled_BP @ proxies_CKD.flatten(0, 1)
        grad_CKD = (scaled_BP.T @ unit_BD).view_as(proxies_CKD)
        grad_CKK = grad_CKK + grad_CKK.mT
        # d(w/|w|) has no part along w: what S and G give along it is taken out again, on the diagonal
        radial_CK = (grad_KBC * similarities_KBC).sum(1).T + (grad_CKK * among_CKK).sum(2)
        weights_CKK = grad_CKK * inverse_CK[:, :, None] * inverse_CK[:, None, :]
        weights_CKK.diagonal(dim1=1, dim2=2).sub_(inverse_CK.square() * radial_CK)
        return grad_unit_BD, grad_CKD.baddbmm_(weights_CKK, proxies_CKD)
