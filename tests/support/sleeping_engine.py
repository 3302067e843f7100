"""Ray with trainings that only sleep; a search file selects it as ``resources.engine``."""

import os
import signal
from pathlib import Path
from typing import Any

from benchmarks.sleeping_trial import SleepingWorker
from search.engines.ray_engine import RayEngine
from trainables.common.storage import Limits

DIES = "HOLDOUT_TEST_DIES"
STOPS = "HOLDOUT_TEST_STOPS"
LOOPS = "HOLDOUT_TEST_LOOPS"
ENGINE = "support.sleeping_engine:SleepingRay"
FLOOR = "HOLDOUT_TEST_FLOOR_S"
"""Seconds that a worker of the driver may be silent, however short its epochs are."""


def sleeping_search(*, trials: int, epochs: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": "sleeps",
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
        "training": {"epochs": epochs, "batch_size": 8, "images_per_class": 2},
        "losses": ["mpa"],
        "search": {"trials": trials, "pruner": "none"},
        "stages": ["search"],
        "resources": {"engine": ENGINE},
        **changes,
    }


def sleeping() -> type:
    """Return a worker that sleeps. The node's environment names the ends of directories whose trials do worse.

    One dies in its first epoch, always; one is stopped in its second epoch, and one loops in it for ever, both once.
    The class is local to this function, so that Ray sends it whole: nodes need not find this module.
    """

    class Sleeping(SleepingWorker):
        def step(self) -> dict[str, Any]:
            if self._is(DIES) and self._epoch == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            once = Path(f"{self._spec.directory}-hung") if self._spec else Path("/")
            if self._epoch == 1 and (self._is(STOPS) or self._is(LOOPS)) and not once.exists():
                once.parent.mkdir(parents=True, exist_ok=True)
                once.write_text(str(os.getpid()))
                if self._is(STOPS):
                    os.kill(os.getpid(), signal.SIGSTOP)
                while True:
                    pass
            return super().step()

        def _is(self, name: str) -> bool:
            return bool(self._spec) and self._spec.directory.endswith(os.environ.get(name, "none"))

    return Sleeping


class SleepingRay(RayEngine):
    worker = sleeping()
    limits = Limits(silence_s=float(os.environ.get(FLOOR, Limits.silence_s)))
