"""An engine that trains in the driver's own process, one worker at a time: for notebooks and tests."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from search.engines.base import Engine, Queue

WAIT_S = 0.2


class InProcess(Engine):
    """One worker in this process. A training that crashes the process or hangs takes the search with it."""

    title = "PyTorch"
    trains_here = True

    @contextmanager
    def session(self) -> Iterator[None]:
        """Give PyTorch a trial's number of threads; the previous number is restored at the end."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(max(1, int(self.resources.cpus_per_trial)))
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    def slots(self) -> int:
        return 1

    def run(self, queue: Queue, concurrent: int) -> None:
        worker = self.worker(cpus=self.resources.cpus_per_trial, gpu=self.resources.gpus_per_trial > 0)
        try:
            while not queue.done:
                running = queue.next_trial()
                if running is None:
                    time.sleep(0 if queue.done else WAIT_S)  # a pause: the storage of checkpoints is away
                    continue
                worker.assign(running.spec)
                while queue.on_trial_result(running, worker.step()):
                    pass
                worker.end()
        finally:
            worker.end()

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        return [function(argument) for argument in arguments]
