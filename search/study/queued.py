"""The content of the trial queue: its studies and stages, running trials, and listeners."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from optuna.trial import FrozenTrial, TrialState

from search.stages import Stage
from search.study.budget import Budget
from search.study.study import LossStudy
from trainables.spec import EpochRecord, TrialSpec


@dataclass(kw_only=True)
class QueuedStudy:
    """One study in a stage: as many trials as ``budget`` permits, each trained according to ``spec``."""

    loss: str
    study: LossStudy
    budget: Budget
    prune: bool
    seed: Callable[[int], int]
    spec: Callable[[FrozenTrial], TrialSpec]
    lost: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        # Trials that are RUNNING now were lost with the previous driver.
        self.lost.extend(trial.number for trial in self.study.trials() if trial.state == TrialState.RUNNING)

    @property
    def has_more(self) -> bool:
        """True if a trial can start now."""
        return bool(self.lost) or self.budget.availability(self.study.trials(), self.study.tally).open

    def start(self) -> FrozenTrial:
        """Start the next trial, lost ones first."""
        return self.study.trial(self.lost.popleft()) if self.lost else self.study.ask(self.seed)

    def end(self) -> None:
        """Record why the study ended early, if it did."""
        if reason := self.budget.early_end(self.study.trials()):
            self.study.set_attributes({"ended_early": reason})


@dataclass(frozen=True, kw_only=True)
class QueuedStage:
    """A stage and its studies, whose trials can run concurrently."""

    stage: Stage
    studies: Sequence[QueuedStudy]


@dataclass(kw_only=True)
class RunningTrial:
    """A trial that is being trained.

    ``crashes`` counts how often its own process died since its last new epoch, ``storage_failures`` how often its files
    could not be stored since they last were, and ``new_epochs`` the epochs of this attempt.
    """

    stage: Stage
    queued: QueuedStudy
    number: int
    spec: TrialSpec
    crashes: int = 0
    storage_failures: int = 0
    new_epochs: int = 0

    @property
    def keeps_files(self) -> bool:
        """True if this attempt stored a checkpoint: the first epoch's is written while the second epoch trains."""
        return self.new_epochs > 1

    @property
    def loss(self) -> str:
        """The loss that is trained."""
        return self.queued.loss

    @property
    def study(self) -> LossStudy:
        """The study of the trial."""
        return self.queued.study

    @property
    def study_name(self) -> str:
        """The name of the study."""
        return self.study.name

    @property
    def stored(self) -> FrozenTrial:
        """The trial as it is stored now."""
        return self.study.trial(self.number)

    @property
    def name(self) -> str:
        """The study and the number."""
        return f"{self.study.name} trial {self.number}"


class TrialListener:
    """Callbacks for the events of a queue. ``trial`` is the trial as it is stored after the event."""

    def on_start(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Handle a trial that was given to a worker, for the first time or again."""

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Handle a new epoch of a trial."""

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Handle a trial that is COMPLETE, PRUNED or FAIL."""

    def on_lost(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Handle a trial that lost its worker; it will be started again."""
