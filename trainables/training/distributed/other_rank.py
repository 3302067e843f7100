"""The program of a rank that is not the first: ``python -m trainables.training.distributed.other_rank FD``.

It carries out the orders that come through the pipe FD, and ends when that closes.
"""

import io
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import Connection

import torch
import torch.distributed as dist
from torch import Tensor

from trainables.losses.base import Loss
from trainables.spec import TrialSpec, derived_seed
from trainables.training.distributed.ranks import Begin, Done, Failed, TrainEpoch, is_of_group, join
from trainables.training.distributed.training import SharedTraining


class LossElsewhere(Loss):
    """The loss that rank 0 computes: of it only the gradient comes here, through what stands for the embeddings."""

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        return embeddings_BD


class OtherRank(SharedTraining):
    """The network of a training, on this rank: it neither validates nor keeps anything."""

    def __init__(self, begin: Begin) -> None:
        spec: TrialSpec = replace(
            begin.spec, validation_classes=(), gallery_seed=None, model=replace(begin.spec.model, weights=None)
        )
        super().__init__(spec, torch.device(begin.device))
        self._rank = begin.rank
        self._order: TrainEpoch | None = None
        state = torch.load(io.BytesIO(begin.optimizer), map_location="cpu", weights_only=True)
        # The loss's parameters, the last groups, are rank 0's alone.
        groups = state["param_groups"][: len(self._optimizer.param_groups)]
        known = {number for group in groups for number in group["params"]}
        kept = {number: values for number, values in state["state"].items() if number in known}
        self._optimizer.load_state_dict({"state": kept, "param_groups": groups})

    def _make_loss(self) -> Loss:
        return LossElsewhere()

    def _resume(self) -> None:
        """Nothing: rank 0 says where to go on."""

    def train(self, order: TrainEpoch) -> None:
        """Train an epoch beside rank 0."""
        self._order = order
        for group, lr in zip(self._optimizer.param_groups, order.learning_rates):
            group["lr"] = lr
        self._make_ready(order.epoch)
        self._train(order.epoch)

    def _batches(self, epoch: int) -> Iterable[Tensor]:
        assert self._order is not None
        # What a network draws, such as dropout's masks, is not what rank 0 draws.
        torch.manual_seed(derived_seed(self.spec.seed, epoch, "torch", self._rank))
        return map(torch.tensor, self._order.batches)


def _listen(connection: Connection, orders: "queue.SimpleQueue[Begin | TrainEpoch | None]") -> None:
    while True:
        try:
            orders.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)  # rank 0 is gone, and the other threads may wait for it


def _serve(connection: Connection, orders: "queue.SimpleQueue[Begin | TrainEpoch | None]") -> None:
    begin = orders.get()
    assert isinstance(begin, Begin)
    torch.set_default_dtype(getattr(torch, begin.dtype))
    torch.set_num_threads(begin.threads)
    if (device := torch.device(begin.device)).type == "cuda":
        torch.cuda.set_device(device)
    training = OtherRank(begin)
    connection.send(Done())
    join(begin)
    while isinstance(order := orders.get(), TrainEpoch):
        training.train(order)
        connection.send(Done())
    dist.destroy_process_group()


def main() -> None:
    """Carry out the orders; what fails is told to rank 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who interrupts the training interrupts rank 0
    connection = Connection(int(sys.argv[1]))
    orders: queue.SimpleQueue[Begin | TrainEpoch | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    try:
        _serve(connection, orders)
    except Exception as error:
        if is_of_group(error):
            time.sleep(1)  # what the rank says that is why, or its end, comes first
        connection.send(Failed.of(error))
        raise


if __name__ == "__main__":
    main()
