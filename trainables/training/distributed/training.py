"""A training on several devices: the part common to all ranks, and rank 0.

Shapes: B images of the batch, b those of this rank, D embedding dimensions.
"""

import gc
import io
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainables.mistakes import Mistakes
from trainables.models.embedding import autocast
from trainables.spec import EpochRecord, TrialSpec
from trainables.training.distributed import RankLost
from trainables.training.distributed.batch import gathered, shares, sum_gradients, take_common_statistics
from trainables.training.distributed.ranks import BLAME_S, OtherRanks, is_of_group
from trainables.training.train import Training


class SharedTraining(Training):
    """A training on one of its ranks, which have joined torch's default process group."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        super().__init__(spec, device)
        if not spec.model.freeze_bn:  # frozen batch normalisation computes no statistics
            take_common_statistics(self.model, device)
        self._wrapped: DistributedDataParallel | None = None
        self._wrapped_for: set[int] = set()

    def _network(self) -> nn.Module:
        """Return the network wrapped to sum gradients over the ranks, for the parameters that learn in this epoch.

        Wrapping copies rank 0's parameters and buffers to all ranks.
        """
        learning = {id(parameter) for parameter in self.model.parameters() if parameter.requires_grad}
        if self._wrapped is None or learning != self._wrapped_for:
            self._wrapped = None
            gc.collect()  # which removes its hooks from the parameters
            self._wrapped = DistributedDataParallel(self.learning_network, static_graph=True)
            self._wrapped.register_comm_hook(None, sum_gradients)
            self._wrapped_for = learning
        return self._wrapped

    def _share(self, batch: int) -> slice:
        if batch < (ranks := dist.get_world_size()):
            raise Mistakes(
                f"resources.gpus_per_trial is {ranks} and a batch has {batch} images, so that a GPU has none: "
                "give a larger training.batch_size or fewer GPUs."
            )
        return _shares(batch)[dist.get_rank()]

    def _embeddings(self, images: Tensor, batch: int) -> Tensor:
        """Embed this rank's share; on rank 0 return the embeddings of the whole batch, see :func:`gathered`."""
        with autocast(self.device, self._config.precision):
            embeddings_bD: Tensor = self._network()(images)
        return gathered(embeddings_bD, [rows.stop - rows.start for rows in _shares(batch)])


def _shares(batch: int) -> list[slice]:
    return shares(batch, dist.get_world_size())


class FirstRank(SharedTraining):
    """Rank 0 of a training, with the interface of a training on one device.

    The processes of the other ranks start with its first epoch and end with the training or its garbage collection.
    Random draws are those of one process, except the network's own, such as dropout. Results equal those of one process
    up to rounding.
    """

    def __init__(self, spec: TrialSpec, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._others: OtherRanks | None = None
        self._end_others: Callable[[], object] = lambda: None
        super().__init__(spec, devices[0])

    def run_epoch(self) -> EpochRecord:
        """Train the next epoch as :meth:`Training.run_epoch` does.

        Raises:
            RankLost: one of the other processes died or does not answer.
            Exception: one of them raised it.
        """
        try:
            record = super().run_epoch()
        except BaseException as error:
            self._kill_others(error)
            raise
        if self.finished:
            self._end_others()
        return record

    def _kill_others(self, error: BaseException) -> None:
        """Kill the other processes; if one of them failed before this rank did, raise its error."""
        if self._others is None:
            return
        of_group = is_of_group(error)
        failure = self._others.failure(BLAME_S if of_group else 0)
        self._others.kill()
        self._end_others()
        if failure is not None and failure is not error:
            raise failure
        if of_group:
            raise RankLost(f"A process of this training does not answer: {error}") from error

    def _started(self) -> OtherRanks:
        if self._others is None:
            state = io.BytesIO()
            torch.save(self.optimizer.state_dict(), state)
            self._others = OtherRanks(self.spec, self._devices, state.getvalue())
            self._end_others = weakref.finalize(self, self._others.end)
        return self._others

    def _batches(self, epoch: int) -> Iterable[Tensor]:
        """Draw all batches and send them to the other ranks, so that they agree for any user-defined sampler."""
        batches = list(super()._batches(epoch))
        self._started().train(epoch, [batch.tolist() for batch in batches])
        return batches

    def _train(self, epoch: int) -> Any:
        trained = super()._train(epoch)
        self._started().wait()
        return trained
