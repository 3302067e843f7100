"""Time that an epoch of 10 s waits for its checkpoints, with ResNet-50's weights and AdamW's state: 307 MB and 102 MB.

    python -m benchmarks.checkpoints

Every epoch is the best so far, so both files are written each time: to the disk of the temporary folder, and to a store
that takes 60 MB/s. An epoch consists of steps of a small network on one core, the default of a trial. Its many short
operations are sensitive to the GIL and to CPU contention. The speed of steps during writing is compared to that of the
seconds before, without writing, since the machine may be shared.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from torchvision.models import resnet50

from benchmarks.slow_store import register_slow_store
from benchmarks.timing import Step
from trainables.common.files import as_path, write_whole
from trainables.training.checkpoints import Checkpoints

EPOCH_S = 10.0
EPOCHS = 3
STORE_MB_PER_S = 60
States = Callable[[], tuple[dict[str, Any], dict[str, Any]]]


class Saving(Protocol):
    """An interface for saving an epoch's states and waiting for pending writes."""

    def save(self) -> None: ...

    def wait(self) -> None: ...


def resnet50_states() -> States:
    """Return a function that creates the states of a ResNet-50 training: to resume from, and the best model."""
    model = resnet50(weights=None)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()

    def states() -> tuple[dict[str, Any], dict[str, Any]]:
        weights = model.state_dict()
        return {"model": weights, "optimizer": optimizer.state_dict()}, {"model": weights}

    return states


class NoCheckpoints:
    """No saving, which shows the noise of the measurement."""

    def save(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Do nothing."""


class WaitedFor:
    """Synchronous saving of both files, one after the other."""

    def __init__(self, states: States, address: str) -> None:
        self._states, self._address = states, address

    def save(self) -> None:
        """Write both files."""
        last, best = self._states()
        self._write("best.pt", best)
        self._write("last.pt", last)

    def _write(self, name: str, state: dict[str, Any]) -> None:
        write_whole(as_path(f"{self._address}/{name}"), lambda file: torch.save(state, file))

    def wait(self) -> None:
        """Do nothing."""


class InTheBackground:
    """Saving in the background, as a training does."""

    def __init__(self, states: States, address: str) -> None:
        self._states, self._checkpoints = states, Checkpoints(address, "digest")
        self.wait = self._checkpoints.wait

    def save(self) -> None:
        """Copy the states and start writing them."""
        self._checkpoints.save(*self._states())


def training_step() -> Step:
    """Return a function that takes one step of a small network."""
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters())
    images = torch.rand(16, 3, 16, 16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(images).square().mean().backward()
        optimizer.step()

    return step


def steps_per_second(step: Step, seconds: float) -> float:
    """Take steps for ``seconds`` and return their rate."""
    taken, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        step()
        taken += 1
    return taken / spent


def measure(step: Step, checkpoints: Saving) -> tuple[float, float]:
    """Return the seconds that an epoch waits, and the speed of its steps relative to steps without writing."""
    waited, speeds = [], []
    for _ in range(EPOCHS):
        alone = steps_per_second(step, EPOCH_S / 2)
        start = time.perf_counter()
        checkpoints.save()
        saved = time.perf_counter()
        speeds.append(steps_per_second(step, EPOCH_S) / alone)
        end = time.perf_counter()
        checkpoints.wait()  # as the next save would wait
        waited.append(saved - start + time.perf_counter() - end)
    return statistics.median(waited), statistics.median(speeds)


def main() -> None:
    torch.set_num_threads(1)
    register_slow_store(STORE_MB_PER_S * 1e6)
    step, states = training_step(), resnet50_states()
    table = Table(title=f"Checkpoints of a ResNet-50 every {EPOCH_S:.0f} s, {EPOCHS} times", title_justify="left")
    for column in ("written to", "checkpoints", "an epoch waits, s", "share", "speed beside them"):
        table.add_column(column, justify="left" if column in ("written to", "checkpoints") else "right")
    with tempfile.TemporaryDirectory() as scratch:
        rows: list[tuple[str, str, Saving]] = [("", "none", NoCheckpoints())]
        for storage, address in (("disk", scratch), (f"store, {STORE_MB_PER_S} MB/s", "slow://bucket/trial")):
            rows.append((storage, "waited for", WaitedFor(states, address)))
            rows.append((storage, "in the background", InTheBackground(states, address)))
        for storage, name, checkpoints in rows:
            waited, speed = measure(step, checkpoints)
            table.add_row(storage, name, f"{waited:.3f}", f"{waited / EPOCH_S:.1%}", f"{speed:.3f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
