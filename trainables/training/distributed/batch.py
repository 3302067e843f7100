"""A batch that several ranks embed: gathering, gradients, and common batch statistics.

Rank 0 gathers the embeddings, computes the loss, and scatters its gradient back.

Shapes: B images of the batch, b those of one rank, D embedding dimensions, C channels.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.losses.base import promoted
from trainables.mistakes import Mistakes


def shares(batch: int, ranks: int) -> list[slice]:
    """Return each rank's rows of a batch, in order; if it does not divide evenly, the first ranks get one more."""
    sizes = [batch // ranks + (rank < batch % ranks) for rank in range(ranks)]
    return [slice(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def gathered(rows_bD: Tensor, sizes: Sequence[int]) -> Tensor:
    """Gather the embeddings of all ranks on rank 0; return a 0 on the others, through which the gradient flows.

    Every rank has to call ``backward`` on a function of the result. Each then receives the gradient of rank 0's loss
    with respect to its own rows. Nothing is averaged, so the ranks' network gradients sum to that of the whole batch.

    Args:
        rows_bD: this rank's embeddings, of the same dtype on all ranks.
        sizes: the number of rows of each rank.

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
    """Pad with zero rows, since gather and scatter need one size on all ranks."""
    return pad(rows_bD.detach(), (0, 0, 0, size - len(rows_bD))).contiguous()


def sum_gradients(_: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket of gradients over the ranks: a hook for ``DistributedDataParallel``, which averages by default."""
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    return work.get_future().then(lambda done: done.value()[0])


# Batch normalisation with the statistics of the whole batch instead of one rank's share.


class _Sum(torch.autograd.Function):
    """The sum over the ranks, available on each of them; its gradients are summed over the ranks too."""

    @staticmethod
    def forward(ctx: Any, part: Tensor) -> Tensor:
        total = part.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total


class BatchNormOfRanks(_BatchNorm):
    """Batch normalisation of maps [b, C, …] by the mean and variance over all B images and their pixels.

    It works on any device; torch's ``SyncBatchNorm``, on GPUs only, is faster.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"Batch normalisation takes at least 2 dimensions, and these maps have {input.dim()}.")

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise ``maps``; in evaluation mode with the running statistics."""
        if not self.training:
            return super().forward(maps)
        self._check_input_dim(maps)
        others = [dim for dim in range(maps.dim()) if dim != 1]
        values = promoted(maps)
        count = values.new_tensor([values.numel() / values.shape[1]])
        sums: Tensor = _Sum.apply(torch.cat([values.sum(others), count]))
        total = sums[-1].detach()
        mean_C = sums[:-1] / total
        shape = [1, -1, *[1] * (maps.dim() - 2)]
        centred = values - mean_C.view(shape)
        variance_C: Tensor = _Sum.apply(centred.square().sum(others)) / total
        self._track(mean_C.detach(), (variance_C * total / (total - 1)).detach())
        normed = centred * (variance_C + self.eps).rsqrt().view(shape)
        if self.affine:
            normed = normed * self.weight.view(shape) + self.bias.view(shape)
        return normed.to(maps.dtype)

    @torch.no_grad()
    def _track(self, mean_C: Tensor, variance_C: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        weight = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean_C.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance_C.to(self.running_var.dtype), weight)


PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def take_common_statistics(network: nn.Module, device: torch.device) -> None:
    """Replace the batch normalisation inside ``network`` by one over all ranks.

    Parameters and buffers keep their names and values.

    Raises:
        Mistakes: the network has a custom batch normalisation.
    """
    kind = nn.SyncBatchNorm if device.type == "cuda" else BatchNormOfRanks
    for parent in list(network.modules()):
        for name, module in parent.named_children():
            if not isinstance(module, _BatchNorm):
                continue
            if type(module) not in PLAIN:
                raise Mistakes(
                    f"resources.gpus_per_trial is more than 1 and the network normalises batches by "
                    f"{type(module).__name__}, whose statistics cannot be taken over several GPUs: set "
                    "model.freeze_bn: true (or statistics), or gpus_per_trial: 1."
                )
            setattr(parent, name, _replaced(module, kind))


def _replaced(module: _BatchNorm, kind: type[_BatchNorm]) -> _BatchNorm:
    made = kind(
        module.num_features, module.eps, module.momentum,
        affine=module.affine, track_running_stats=module.track_running_stats,
    )  # fmt: skip
    for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
        setattr(made, name, getattr(module, name))
    return made.train(module.training)
