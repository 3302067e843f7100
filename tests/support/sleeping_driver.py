"""``holdout`` with trainings that only sleep: a driver as it is, whose trials cost nothing."""

import os
import signal
from typing import Any

from search.cluster.session import import_ray

DIES = "HOLDOUT_TEST_DIES"


def sleeping() -> type:
    """A training that sleeps, and dies in its first epoch where the node's environment names its trial's number so."""
    from benchmarks.sleeping_trial import SleepingTrial

    class Sleeping(SleepingTrial):
        def step(self) -> dict[str, Any]:
            if self._spec and self._epoch == 0 and self._spec.directory.endswith(os.environ.get(DIES, "none")):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().step()

    return Sleeping


if __name__ == "__main__":
    import_ray()  # sets its token, which has to happen before anything else imports Ray
    import search.cluster.tune.tuner
    from search.cli.main import main

    search.cluster.tune.tuner.TrainingTrial = sleeping()  # type: ignore[misc,assignment]
    main()
