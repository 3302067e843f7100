"""Batch normalisation whose statistics are those of the whole batch, not of one rank's share of it.

torch's ``SyncBatchNorm`` does it on GPUs alone; :class:`BatchNormOfRanks` does it anywhere, more slowly.

Shapes: B images of the batch, b those of this rank, C channels.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainables.losses.operations import promoted
from trainables.mistakes import Mistakes

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


class _Sum(torch.autograd.Function):
    """The sum over the ranks, on each of them; what each makes of it has a gradient, and these are summed too."""

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
    """Maps [b, C, …] normalised by the mean and the variance over all B images and their pixels."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"Batch normalisation takes at least 2 dimensions, and these maps have {input.dim()}.")

    def forward(self, maps: Tensor) -> Tensor:
        """Normalise; in evaluation as any batch normalisation."""
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


def take_common_statistics(network: nn.Module, device: torch.device) -> None:
    """Replace the batch normalisation inside ``network`` by one of all ranks.

    Parameters and buffers, with their names, stay what they are.

    Raises:
        Mistakes: the network has batch normalisation of a kind of its own.
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
                    "model.freeze_bn: true, or gpus_per_trial: 1."
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
