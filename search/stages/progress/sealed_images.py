"""Says which test images look damaged, while trainings run: else it would show when the test opens, after days."""

import logging
from collections.abc import Sequence
from threading import Thread

from search.plan.plan import Plan

logger = logging.getLogger(__name__)

LOOK_S = 600


class SealedImagesLook:
    """Looks at the test images of searches from outside, in a thread of its own.

    It begins when the first training can: sixty thousand files take seconds on a local disk, but minutes on a slow
    network, and nobody has to wait for what only the test needs. Nothing is decoded and nothing is opened.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        self._plans = plans
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until all is said that is to be said, as long as a look may take."""
        self._thread.join(LOOK_S)

    def _run(self) -> None:
        first = {(plan.config.dataset.source, plan.split.test): plan for plan in reversed(self._plans)}
        for plan in reversed(first.values()):
            try:
                sentence = plan.sealed_test.damage(LOOK_S)
            except Exception as error:  # somebody's data set may raise anything, and trainings need none of this
                sentence = f"The images of test classes cannot be looked at ({type(error).__name__}: {error})."
            if sentence:
                logger.warning("%s: %s", plan.config.name, sentence)
