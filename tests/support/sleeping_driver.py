"""``holdout`` with trainings that only sleep: a driver as it is, whose trials cost nothing."""

import os
import signal
from pathlib import Path
from typing import Any

from search.engines.ray_session import import_ray

DIES = "HOLDOUT_TEST_DIES"
STOPS = "HOLDOUT_TEST_STOPS"
LOOPS = "HOLDOUT_TEST_LOOPS"
FLOOR = "HOLDOUT_TEST_FLOOR_S"
"""How long a worker of the driver that is started may say nothing, however short its epochs are."""


def sleeping() -> type:
    """A training that sleeps. The node's environment names the ends of directories whose trials do worse.

    One dies in its first epoch, always; one is stopped in its second epoch, and one loops in it for ever, both once.
    """
    from benchmarks.sleeping_trial import SleepingTrial

    class Sleeping(SleepingTrial):
        def step(self) -> dict[str, Any]:
            if self._is(DIES) and self._epoch == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._epoch == 1 and (self._is(STOPS) or self._is(LOOPS)):
                self._hang()
            return super().step()

        def _is(self, name: str) -> bool:
            return bool(self._spec) and self._spec.directory.endswith(os.environ.get(name, "none"))

        def _hang(self) -> None:
            once = Path(f"{self._spec.directory}-hung")
            if once.exists():
                return
            once.parent.mkdir(parents=True, exist_ok=True)
            once.write_text(str(os.getpid()))
            if self._is(STOPS):
                os.kill(os.getpid(), signal.SIGSTOP)
            while True:
                pass

    return Sleeping


if __name__ == "__main__":
    import_ray()  # sets its token, which has to happen before anything else imports Ray
    import search.engines.ray_tune
    import search.engines.waiting
    from search.cli.main import main

    search.engines.ray_tune.TrainingTrial = sleeping()  # type: ignore[misc,assignment]
    search.engines.waiting.FLOOR_S = float(os.environ.get(FLOOR, search.engines.waiting.FLOOR_S))
    main()
