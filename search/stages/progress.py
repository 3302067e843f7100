"""Live progress: trials done, running, pruned and failed, the best so far, and the time left."""

import statistics
import time
from collections import deque
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from search.study.budget import Budget
from search.study.names import Stage
from search.study.tally import Tally
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import EpochRecord

TITLES = {
    Stage.NOISE: "Measuring the noise",
    Stage.SEARCH: "Searching",
    Stage.AUDIT: "Auditing the pruning",
    Stage.SELECT: "Confirming the finalists",
    Stage.TEST: "Training for the test",
}


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One study's trials: those planned, those so far, and how many epochs a whole training has."""

    budget: Budget
    tally: Tally
    epochs_each: int

    def left(self) -> float:
        """Epochs still to train, if the trials to come are pruned as early as those that ended."""
        tally = self.tally
        typical = (tally.epochs - tally.epochs_running) / tally.ended if tally.ended else self.epochs_each
        going = max(0.0, tally.running * typical - tally.epochs_running)
        to_start = (self.budget.most - tally.started) * typical
        if self.budget.epochs is None:
            return to_start + going
        return min(to_start, max(0.0, self.budget.epochs - tally.epochs - going)) + going


class Progress(TrialListener, AbstractContextManager["Progress"]):
    """Shows the queue's trials: a live table on a terminal, a line a finished trial elsewhere."""

    def __init__(self, console: Console, concurrent: int = 1) -> None:
        self.concurrent = concurrent
        self._console = console
        self._stage: Stage | None = None
        self._rows: dict[str, _Row] = {}
        self._seconds: deque[float] = deque(maxlen=100)
        # Drawn now and then, and not at every event: of hundreds of slots something comes every few milliseconds.
        live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
        self._live = live if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """One line about what is being done."""
        self._console.print(text, style="dim", highlight=False)

    def on_start(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Show the trial, and its stage where it is the first."""
        if running.stage is not self._stage:
            self._stage, self._rows = running.stage, {}
            if not self._live:
                self.say(f"{TITLES[running.stage]} …")
        name = running.study.name
        budget = running.queued.budget
        if name not in self._rows or self._rows[name].budget != budget:  # the choice asks for more of the better half
            row = _Row(budget=budget, tally=running.study.tally, epochs_each=running.spec.epochs)
            self._rows = {**self._rows, name: row}  # the thread that draws may be going through the old ones

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Show how far the trial is."""
        self._seconds.append(record["end"] - record["start"])

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Show how the trial ended."""
        if not self._live:
            line = self._line(running, trial.user_attrs.get("outcome", ""))
            self._console.print(line, highlight=False, soft_wrap=True)

    def _time_left(self) -> str:
        if not self._seconds:
            return "–"
        epochs = sum(row.left() for row in self._rows.values())
        seconds = epochs * statistics.fmean(self._seconds) / self.concurrent
        return time.strftime("%H:%M:%S", time.gmtime(seconds))

    def _line(self, running: RunningTrial, outcome: str) -> str:
        tally = running.study.tally
        best = "" if tally.best is None else f"; best {tally.best:.4f}"
        return (
            f"{running.study.name} trial {running.number}: {outcome} "
            f"[{tally.ended}/{running.queued.budget.most}{best}; about {self._time_left()} left in this stage]"
        ).replace("[", "\\[")

    def _table(self) -> RenderableType:
        if self._stage is None:
            return ""
        table = Table(title=TITLES[self._stage], title_justify="left", box=None)
        for column in ("loss", "done", "running", "pruned", "failed", "best"):
            table.add_column(column, justify="left" if column == "loss" else "right")
        for name, row in self._rows.items():
            tally = row.tally
            table.add_row(
                name,
                f"{tally.ended}/{row.budget.most}",
                str(tally.running),
                str(tally.states[TrialState.PRUNED]),
                str(tally.states[TrialState.FAIL]),
                "–" if tally.best is None else f"{tally.best:.4f}",
            )
        return Group(table, Text(f"about {self._time_left()} left in this stage", style="dim"))


class StoreProgress:
    """Says now and then how many images are decoded."""

    def __init__(self, console: Console, every_s: float = 5) -> None:
        self._console = console
        self._every_s = every_s
        self._next = time.monotonic() + every_s

    def __call__(self, done: int, total: int) -> None:
        """Take the number of images decoded so far."""
        if time.monotonic() >= self._next:
            self._console.print(f"Decoding images: {done:,} of {total:,}", style="dim", highlight=False)
            self._next = time.monotonic() + self._every_s
