"""The operations that the losses are written in: unit vectors, class masks, safe exponentials, reductions.

Shapes: B batch, D embedding, any trailing shape as ``...``.
"""

from typing import Literal, get_args

import torch

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
