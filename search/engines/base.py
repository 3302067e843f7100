"""The interface between a driver and an engine, which runs the trials of a queue on workers, and the simplest engine.

The study decides and the engine carries out: an engine keeps no state that a search needs to resume.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol

from search.tables import ENGINES, engine_name
from spaces.contract import CheckResult
from trainables.common.storage import LIMITS, Limits
from trainables.data.store.store_spec import StoreSpec
from trainables.training.attempt import Worker
from trainables.training.spec import News, TrialSpec


class Resources(Protocol):
    """What a trial asks for: the section ``resources`` of a search file."""

    engine: str
    cpus_per_trial: float
    gpus_per_trial: float


class Running(Protocol):
    """A trial that a worker trains; ``study_name`` is that of its study."""

    spec: TrialSpec

    @property
    def study_name(self) -> str: ...


class Queue(Protocol):
    """The source of an engine's work (:class:`search.study.TrialQueue`); an engine knows nothing of studies."""

    done: bool

    @property
    def has_to_wait(self) -> bool:
        """True if nothing can start before a running trial or a pause ends."""

    def next_trial(self) -> Running | None:
        """Return the next trial to train; None if a running trial or a pause has to end first, or all is done."""

    def on_trial_result(self, running: Any, news: News) -> bool:
        """Record the news of a step in the study; return True if the trial continues."""

    def on_trial_error(self, running: Any, reason: str, *, own: bool) -> None:
        """Record that the worker of a trial died; ``own`` is False if its machine is gone."""


class Engine(ABC):
    """Workers for the trials of searches that ask for the same ``resources``.

    A driver makes an engine, opens its :meth:`session`, and uses the other methods inside. Nothing is started and
    nothing heavy is imported before that.

    Attributes:
        title: what the engine starts, for sentences: "Ray".
        worker: the class that every worker process makes an object of.
        limits: how long is waited for a machine and for a silent worker.
        checks: checks of this machine for ``holdout doctor``.
        trains_here: True if trials run in the driver's process, so that no other thread may import libraries then.
        images_first: True if the images have to be decoded before the session opens, instead of meanwhile.
        on_workers: called with the number of trials that can run at once when it changes during a run.
    """

    title: ClassVar[str]
    worker: ClassVar[type[Any]] = Worker
    limits: ClassVar[Limits] = LIMITS
    checks: ClassVar[tuple[Callable[[], Iterator[CheckResult]], ...]] = ()
    trains_here: ClassVar[bool] = False
    images_first: bool = False

    def __init__(self, resources: Resources, max_concurrent: int | None = None) -> None:
        self.resources = resources
        self.max_concurrent = max_concurrent
        self.on_workers: Callable[[int], None] = lambda workers: None

    @abstractmethod
    def session(self) -> AbstractContextManager[None]:
        """Return a context in which the workers can be used; every process started in it ends with it.

        Raises:
            NoEngine: on entry, if the engine cannot be started or reached.
        """

    def load(self) -> None:  # noqa: B027
        """Import what the other methods need. Called from another thread while the session opens."""

    @abstractmethod
    def slots(self) -> int:
        """Return the number of trials at once, ``max_concurrent`` at most; raise if not even one fits."""

    def prepare(self, images: Sequence[StoreSpec], shared: Sequence[str]) -> None:  # noqa: B027
        """Decode ``images`` on all other machines and check that they share the folders and URLs ``shared``.

        Raises:
            InvalidInput: images cannot be read, or a folder or URL is not the same everywhere.
            DiskFull: a machine has no space for the images.
        """

    @abstractmethod
    def run(self, queue: Queue, concurrent: int) -> None:
        """Train everything in ``queue``, at most ``concurrent`` trials at once.

        A worker that dies loses its trial (:meth:`Queue.on_trial_error`); exceptions of the queue end the run.
        """

    @abstractmethod
    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return ``function`` of each argument in order, computed by workers with a trial's resources each.

        Raises:
            Exception: the first that ``function`` raised; ``Failure`` and ``InvalidInput`` arrive unchanged.
        """


WAIT_S = 0.2


class InProcess(Engine):
    """One worker in this process, for notebooks and tests; a training that crashes or hangs ends the search."""

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


def make_engine(resources: Resources, max_concurrent: int | None = None) -> Engine:
    """Return the engine that ``resources.engine`` names; raise if its import path leads to none."""
    engine: Engine = ENGINES[engine_name(resources.engine, resources.gpus_per_trial)](resources, max_concurrent)
    return engine
