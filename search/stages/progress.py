"""Live progress: trials done, running, pruned and failed, the best so far, and the time left."""

import time
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import TracebackType

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from search.study.names import Stage
from search.study.records import epochs_of, epochs_trained
from search.study.trial_queue import RunningTrial, TrialListener
from trainables.training.epoch_record import EpochRecord

TITLES = {
    Stage.NOISE: "Measuring the noise",
    Stage.SEARCH: "Searching",
    Stage.SELECT: "Confirming the finalists",
    Stage.TEST: "Training for the test",
}


@dataclass(kw_only=True)
class _Row:
    """One study's numbers. ``epochs`` are those trained, ``known`` the state of each trial heard of.

    ``budget`` is what may still be trained of a budget in epochs, those of ``epochs`` not yet taken off.
    """

    target: int
    budget: int | None
    before: int
    epochs_each: int
    states: dict[int, TrialState] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    best: float | None = None

    @property
    def ended(self) -> int:
        return self.before + sum(state.is_finished() for state in self.states.values())

    def left(self) -> float:
        """Epochs still to train, if the trials to come are pruned as early as those that ended."""
        done = [self.epochs[number] for number, state in self.states.items() if state.is_finished()]
        typical = sum(done) / len(done) if done else self.epochs_each
        running = [self.epochs[number] for number, state in self.states.items() if not state.is_finished()]
        to_start = self.target - self.ended - len(running)
        going = sum(max(0.0, typical - epochs) for epochs in running)
        if self.budget is None:
            return to_start * typical + going
        return min(to_start * typical, max(0.0, self.budget - sum(self.epochs.values()) - going)) + going


class Progress(TrialListener, AbstractContextManager["Progress"]):
    """Shows the queue's trials: a live table on a terminal, a line a finished trial elsewhere."""

    def __init__(self, console: Console, concurrent: int = 1) -> None:
        self.concurrent = concurrent
        self._console = console
        self._stage: Stage | None = None
        self._rows: dict[str, _Row] = {}
        self._seconds: list[float] = []
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

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
        self._update(running, trial)

    def on_epoch(self, running: RunningTrial, trial: FrozenTrial, record: EpochRecord) -> None:
        """Show how far the trial is."""
        self._seconds = [*self._seconds[-99:], record["end"] - record["start"]]
        self._update(running, trial)

    def on_end(self, running: RunningTrial, trial: FrozenTrial) -> None:
        """Show how the trial ended."""
        row = self._update(running, trial)
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            row.best = trial.value if row.best is None else max(row.best, trial.value)
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            line = self._line(running, row, trial.user_attrs.get("outcome", ""))
            self._console.print(line, highlight=False, soft_wrap=True)

    def _update(self, running: RunningTrial, trial: FrozenTrial) -> _Row:
        row = self._row(running)
        row.states[running.number] = trial.state
        row.epochs[running.number] = len(epochs_of(trial))
        if self._live:
            self._live.update(self._table(), refresh=True)
        return row

    def _row(self, running: RunningTrial) -> _Row:
        name = running.study.name
        if name not in self._rows:
            trials = [trial for trial in running.study.trials() if trial.number != running.number]
            budget = running.queued.budget
            values = [trial.value for trial in trials if trial.state == TrialState.COMPLETE and trial.value is not None]
            self._rows[name] = _Row(
                target=budget.most,
                budget=None if budget.epochs is None else budget.epochs - epochs_trained(trials),
                before=sum(trial.state.is_finished() for trial in trials),
                epochs_each=running.spec.epochs,
                best=max(values, default=None),
            )
        return self._rows[name]

    def _time_left(self) -> str:
        if not self._seconds:
            return "–"
        epochs = sum(row.left() for row in self._rows.values())
        seconds = epochs * sum(self._seconds) / len(self._seconds) / self.concurrent
        return time.strftime("%H:%M:%S", time.gmtime(seconds))

    def _line(self, running: RunningTrial, row: _Row, outcome: str) -> str:
        best = "" if row.best is None else f"; best {row.best:.4f}"
        return (
            f"{running.study.name} trial {running.number}: {outcome} "
            f"[{row.ended}/{row.target}{best}; about {self._time_left()} left in this stage]"
        ).replace("[", "\\[")

    def _table(self) -> RenderableType:
        assert self._stage is not None
        table = Table(title=TITLES[self._stage], title_justify="left", box=None)
        for column in ("loss", "done", "running", "pruned", "failed", "best"):
            table.add_column(column, justify="left" if column == "loss" else "right")
        for name, row in self._rows.items():
            states: Counter[TrialState] = Counter(row.states.values())
            table.add_row(
                name,
                f"{row.ended}/{row.target}",
                str(states[TrialState.RUNNING]),
                str(states[TrialState.PRUNED]),
                str(states[TrialState.FAIL]),
                "–" if row.best is None else f"{row.best:.4f}",
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
