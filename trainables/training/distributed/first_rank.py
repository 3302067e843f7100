"""Rank 0 of a training on several devices, which is used as a training on one is."""

import io
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainables.spec import TrialSpec
from trainables.training.distributed.messages import RankLost
from trainables.training.distributed.other_ranks import BLAME_S, OtherRanks, is_of_group
from trainables.training.distributed.shared_training import SharedTraining
from trainables.training.epoch_record import EpochRecord


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
