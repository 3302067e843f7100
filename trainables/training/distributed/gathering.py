"""A batch that several ranks embed: put together on rank 0, where the loss is, and the loss's gradient dealt out again.

Shapes: B images of the batch, b those of one rank, D embedding dimensions.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad


def shares(batch: int, ranks: int) -> list[slice]:
    """Each rank's rows of a batch, one after the other; the first ones have one more where it cannot be halved."""
    sizes = [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]
    return [slice(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def gathered(rows_bD: Tensor, sizes: Sequence[int]) -> Tensor:
    """On rank 0 the embeddings of all ranks, in their order; on the others a 0, through which the gradient comes.

    Every rank has to call ``backward`` of what it makes of them. Each then gets, for its own rows, the gradient of rank
    0's loss: nothing is averaged, so that the ranks' gradients of a network add up to that of the whole batch.

    Args:
        rows_bD: this rank's embeddings, of the same type everywhere.
        sizes: how many rows each rank has.

    Returns:
        [B, D] on rank 0, a scalar elsewhere.
    """
    embeddings: Tensor = _Gathered.apply(rows_bD, tuple(sizes))
    return embeddings


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_bD: Tensor, sizes: tuple[int, ...]) -> Tensor:
        ctx.sizes, ctx.like = sizes, rows_bD
        own = _padded(rows_bD, max(sizes))
        if dist.get_rank():
            dist.gather(own, dst=0)
            return rows_bD.new_zeros(())
        parts = [torch.empty_like(own) for _ in sizes]
        dist.gather(own, parts, dst=0)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        sizes, like = ctx.sizes, ctx.like
        parts = None
        if not dist.get_rank():
            parts = [_padded(part, max(sizes)) for part in gradients[0].split(sizes)]
        own = like.new_empty(max(sizes), like.shape[1])
        dist.scatter(own, parts, src=0)
        return own[: len(like)], None


def _padded(rows_bD: Tensor, size: int) -> Tensor:
    """With zeros below: what is gathered and scattered has one size on all ranks."""
    return pad(rows_bD.detach(), (0, 0, 0, size - len(rows_bD))).contiguous()


def sum_gradients(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """A communication hook of ``DistributedDataParallel``, which averages without one."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])
