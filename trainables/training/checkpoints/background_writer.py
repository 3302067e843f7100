"""Work beside the training, such as writing files: one job at a time, in a thread of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait


class BackgroundWriter:
    """Runs jobs in a thread, at most one under way: who starts the next one waits for it.

    What a job raises is raised where somebody waits for it, so that a full disk ends the training as any other error
    does. At a regular end of the process Python waits for the job that is under way.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: Future[None] | None = None

    def start(self, job: Callable[[], None]) -> None:
        """Run ``job`` when the one before is done.

        Raises:
            Exception: what the job before raised; ``job`` is not run then.
        """
        self.wait()
        self._under_way = self._thread.submit(job)

    def wait(self) -> None:
        """Wait until no job is under way.

        Raises:
            Exception: what the job raised, once.
        """
        if self._under_way is None:
            return
        wait([self._under_way])  # apart from asking for the result: Ctrl-C here must not make us forget the job
        job, self._under_way = self._under_way, None
        job.result()
