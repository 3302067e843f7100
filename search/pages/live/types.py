"""What the API of the live page answers."""

from search.plan.progress.status import SearchStatus
from search.report.results.result import Result


class RunningTrial(Result):
    """A trial that runs: the ``values`` of its epochs so far, and what it has to reach.

    It is compared next after step ``rung``, where ``bar`` is the least value that goes on as of now; None where no
    comparison follows, or nobody came so far. ``seconds`` passed since its last epoch ended, ``memory_gb`` is the most
    that it held on a GPU; None before its first epoch, and without a GPU.
    """

    study: str
    number: int
    epochs: int
    values: tuple[float, ...]
    rung: int | None
    bar: float | None
    seconds: float | None
    memory_gb: float | None


class Failure(Result):
    """A trial that failed, and why."""

    study: str
    number: int
    reason: str


class LiveSearch(Result):
    """What a search does now: its phase, the trials that run, what is left, and what failed.

    ``elapsed_s`` is since its last driver started, ``left_s`` what all its stages still take at the pace so far (None:
    nobody drives it, or no epoch was measured), ``slots`` how many trials run at once at most.
    """

    status: SearchStatus
    objective: str
    slots: int
    elapsed_s: float | None
    left_s: float | None
    running: tuple[RunningTrial, ...]
    failures: tuple[Failure, ...]


class SectionSoFar(Result):
    """A section of a search's report as HTML; ``digest`` changes with it."""

    name: str
    title: str
    digest: str
    html: str


class Health(Result):
    """Whether a service that a search needs answers; ``problem`` is None where it does."""

    service: str
    address: str
    problem: str | None
