"""A training on several devices, as all ranks have it and as rank 0 is used."""

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
from trainables.training.distributed.batch import gathered, shares, sum_gradients, take_common_statistics
from trainables.training.distributed.ranks import BLAME_S, OtherRanks, RankLost, is_of_group
from trainables.training.train import Training

# What all ranks of a training have in common: each embeds its share of every batch, and learns as the others do.
#
# Shapes: B images of the batch, b those of this rank, D embedding dimensions.


class SharedTraining(Training):
    """A training as one of its ranks sees it, once they have joined torch's default process group."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        super().__init__(spec, device)
        if not spec.model.freeze_bn:  # which takes no statistics
            take_common_statistics(self._model, device)
        self._wrapped: DistributedDataParallel | None = None
        self._wrapped_for: set[int] = set()

    def _network(self) -> nn.Module:
        """The network whose gradients are summed over the ranks, for the parameters that learn in this epoch.

        It begins with rank 0's parameters and buffers on all ranks.
        """
        learning = {id(parameter) for parameter in self._model.parameters() if parameter.requires_grad}
        if self._wrapped is None or learning != self._wrapped_for:
            self._wrapped = None
            gc.collect()  # what it has hooked to the parameters goes with it
            self._wrapped = DistributedDataParallel(self._model, static_graph=True)
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
        """On rank 0 those of the whole batch, see :func:`gathered`."""
        with autocast(self._device, self._config.precision):
            embeddings_bD: Tensor = self._network()(images)
        return gathered(embeddings_bD, [rows.stop - rows.start for rows in _shares(batch)])


def _shares(batch: int) -> list[slice]:
    return shares(batch, dist.get_world_size())


# Rank 0 of a training on several devices, which is used as a training on one is.


class FirstRank(SharedTraining):
    """A training whose batches are shared with other processes, which live until it has ended or is forgotten.

    They are started with its first epoch. What is random is drawn as one process draws it, but for what the network
    draws itself, such as dropout. Its results are those of one process up to rounding.
    """

    def __init__(self, spec: TrialSpec, devices: Sequence[torch.device]) -> None:
        self._devices = devices
        self._others: OtherRanks | None = None
        self._end_others: Callable[[], object] = lambda: None
        super().__init__(spec, devices[0])

    def run_epoch(self) -> EpochRecord:
        """As :meth:`Training.run_epoch`.

        Raises:
            RankLost: one of the other processes died, or does not answer.
            Exception: what one of them raised.
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
        """End them; where one of them failed before this rank did, raise why."""
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
            torch.save(self._optimizer.state_dict(), state)
            self._others = OtherRanks(self.spec, self._devices, state.getvalue())
            self._end_others = weakref.finalize(self, self._others.end)
        return self._others

    def _batches(self, epoch: int) -> Iterable[Tensor]:
        """Drawn at once and sent to the others, so that a sampler of one's own cannot deal them different ones."""
        batches = list(super()._batches(epoch))
        learning_rates = [group["lr"] for group in self._optimizer.param_groups]
        self._started().train(epoch, [batch.tolist() for batch in batches], learning_rates)
        return batches

    def _train(self, epoch: int) -> Any:
        trained = super()._train(epoch)
        self._started().wait()
        return trained
