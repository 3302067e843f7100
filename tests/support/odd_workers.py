"""Workers for the tests of engines: trainings that are made up, die, hang, or say where they ran.

Every worker process imports this module, so it imports little.
"""

import os
import signal
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from search.engines.local import Local
from trainables.common.errors import Failure
from trainables.common.storage import Limits
from trainables.training.spec import Epochs


class MadeUpWorker:
    """Reports an epoch a step; files in the search's folder change that.

    ``dies`` or ``hangs`` makes the next second epoch do so; with ``meet`` first epochs wait for another process's.
    """

    def __init__(self, *, cpus: float, gpu: bool) -> None:
        unused = "trainables.training.cross_validation"  # workers that wait import it, and PyTorch with it
        sys.modules.setdefault(unused, ModuleType(unused))
        self._spec: Any = None
        self._epoch = 0

    def assign(self, spec: Any) -> None:
        self._spec, self._epoch = spec, 0

    def end(self) -> None:
        self._spec = None

    def step(self) -> Epochs:
        directory = Path(self._spec.directory)
        folder = directory.parents[2]
        self._epoch += 1
        epoch = self._epoch
        time.sleep(0.05)
        with (folder / "epochs").open("a") as log:
            log.write(f"{directory.name} {os.getpid()} {epoch}\n")
        while epoch == 1 and (folder / "meet").exists():
            if len({line.split()[1] for line in (folder / "epochs").read_text().splitlines()}) == 2:
                break
            time.sleep(0.05)
        if epoch == 2:
            for name in ("dies", "hangs"):
                if (folder / name).exists():
                    (folder / name).unlink()
                    os.kill(os.getpid(), signal.SIGKILL if name == "dies" else signal.SIGSTOP)
        record = {
            "epoch": epoch,
            "loss": 1.0,
            "batches": 5,
            "metrics": {"map_at_r": epoch / 10, "recall_at_1": epoch / 10},
            "start": epoch,
            "end": epoch + 0.05,
            "checkpoint": None,
        }
        return Epochs([record], finished=epoch == self._spec.training.epochs)


class MadeUpLocal(Local):
    """Local processes with made-up trainings, which may be silent for 2 s."""

    worker = MadeUpWorker
    limits = Limits(silence_s=2.0)


def fails(_: Any) -> None:
    raise Failure("It could not be done.")


def dies(file: str) -> str:
    """End the process by SIGKILL unless ``file`` exists, which is made then; return its name."""
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Path(file).name


def dies_always(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
