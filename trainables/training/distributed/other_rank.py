"""The program of a rank that is not the first: ``python -m trainables.training.distributed.other_rank FD``.

It executes the orders received through the pipe FD, and exits when the pipe closes.
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
    """A placeholder for the loss, which rank 0 computes: only its gradient arrives here, see :func:`gathered`."""

    def compute(self, embeddings_BD: Tensor, labels_B: Tensor) -> Tensor:
        return embeddings_BD


class OtherRank(SharedTraining):
    """A training's network on this rank, without validation and checkpoints."""

    def __init__(self, begin: Begin) -> None:
        spec: TrialSpec = replace(
            begin.spec,
            validation_classes=(),
            gallery_seed=None,
            model=replace(begin.spec.model, weights=None),
            training=replace(begin.spec.training, ema=0.0),
        )
        super().__init__(spec, torch.device(begin.device))
        self._rank = begin.rank
        self._order: TrainEpoch | None = None
        state = torch.load(io.BytesIO(begin.optimizer), map_location="cpu", weights_only=True)
        # The last groups, the loss's parameters, exist on rank 0 only.
        groups = state["param_groups"][: len(self.optimizer.param_groups)]
        known = {number for group in groups for number in group["params"]}
        kept = {number: values for number, values in state["state"].items() if number in known}
        self.optimizer.load_state_dict({"state": kept, "param_groups": groups})

    def _make_loss(self) -> Loss:
        return LossElsewhere()

    def _resume(self) -> None:
        """Do nothing: rank 0 sends its state."""

    def train(self, order: TrainEpoch) -> None:
        """Train an epoch together with rank 0."""
        self._order = order
        self.set_train_mode(order.epoch)
        with self.deterministic:
            self._train(order.epoch)

    def _batches(self, epoch: int) -> Iterable[Tensor]:
        assert self._order is not None
        # Random draws of the network, such as dropout masks, differ from those of rank 0.
        torch.manual_seed(derived_seed(self.spec.seed, epoch, "torch", self._rank))
        return map(torch.tensor, self._order.batches)


def _listen(connection: Connection, orders: "queue.SimpleQueue[Begin | TrainEpoch | None]") -> None:
    while True:
        try:
            orders.put(connection.recv())
        except (EOFError, OSError):
            os._exit(1)  # rank 0 is gone, and the main thread may be waiting for it


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
    """Execute the orders, and report a failure to rank 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by rank 0
    connection = Connection(int(sys.argv[1]))
    orders: queue.SimpleQueue[Begin | TrainEpoch | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, orders), daemon=True).start()
    try:
        _serve(connection, orders)
    except Exception as error:
        if is_of_group(error):
            time.sleep(1)  # the rank that failed first reports its cause before this one
        connection.send(Failed.of(error))
        raise


if __name__ == "__main__":
    main()
