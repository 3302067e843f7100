"""Trial listeners: the display of progress, updates of MLflow, and checks of files."""

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from optuna.trial import TrialState
from rich.console import Console, RenderableType
from rich.live import Live

from search.driver.progress_view import Cells, say, time_left, view
from search.records.plan import trial_directory
from search.records.records import Records
from search.records.work import Work, pace_of, planned_work, seconds_left
from search.stages import Stage, search_of
from search.study import Budget, RunningTrial, TrialListener
from search.text_table import NOTHING, sparkline
from search.tracking import Tracker
from search.trials import Tally, epochs_of, value_in
from trainables.common.errors import counted, printable
from trainables.common.files import as_path
from trainables.common.storage import AnyPath, StorageFailure, ask, storage_errors
from trainables.metrics import score_text
from trainables.training.checkpoints import BEST, forget_last
from trainables.training.spec import EpochRecord

logger = logging.getLogger(__name__)

# The display of progress: counts, values and the time left.

TITLES = {Stage.SEARCH: "Searching", Stage.SELECT: "Confirming the finalists", Stage.TEST: "Training for the test"}
CURVE = 16
"""Number of epochs in a slot's curve."""
QUIET_S = 30.0
"""Without a terminal, a line on an epoch follows after this time without one."""
VERBS = {Stage.SEARCH: "", Stage.SELECT: "confirming ", Stage.TEST: "training for the test: "}


class Progress(TrialListener, AbstractContextManager["Progress"]):
    """Listener that shows the trials: in a live table on a terminal, elsewhere in lines.

    The time left is that of all remaining ``stages`` without the scoring of the test, with ``concurrent`` trials at
    once; the command began at ``started``, in seconds since 1970.
    """

    def __init__(
        self, console: Console, searches: Sequence[Records], stages: Sequence[Stage], *, concurrent: int, started: float
    ) -> None:
        self._console = console
        self._searches = {search.name: search for search in searches}
        self._all = self._concurrent = concurrent
        self._started = started
        self._printed = time.monotonic()
        self._stage: Stage | None = None
        self._classes = 0  # the most that validate a training of the stage
        # The drawing thread reads these dictionaries, so they are replaced and never changed in place.
        works = (work for search in searches for work in planned_work(search.plan, stages, search.trials))
        self._works = {work.study: work for work in works}
        self._slots: dict[tuple[str, int], RunningTrial] = {}
        self._pace = pace_of(searches)
        # Redrawn at a fixed rate: hundreds of slots report every few milliseconds.
        live = Live(console=console, get_renderable=self.rendered, refresh_per_second=4, transient=True)
        self._live = live if console.is_terminal else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()

    def on_start(self, running: RunningTrial) -> None:
        """Show the trial, and the title of its stage if it is the first one of it."""
        if running.stage is not self._stage:
            self._begin(running.stage)
        study, budget, work = running.study, running.queued.budget, self._works[running.study.name]
        if work.tally is not study.tally or work.budget is not budget:
            live = replace(work, budget=budget, tally=study.tally, epochs_each=running.spec.epochs)
            self._works = {**self._works, study.name: live}
        self._classes = max(self._classes, *map(len, (running.spec.validation_classes, *running.spec.folds)))
        self._slots = {**self._slots, _key(running): running}

    def _begin(self, stage: Stage) -> None:
        self._stage, self._classes = stage, 0
        if not self._live:
            lower = "; each learned from half of the classes, so values may be lower than in the search"
            halves = lower * (stage is Stage.SELECT and self._learns_less)
            say(self._console, [f"{TITLES[stage]} …{halves}"])
        for name, work in self._works.items():
            if work.stage is stage is not Stage.SEARCH:  # all of its trials are enqueued now
                trials = self._searches[search_of(name)].trials(work.loss, stage)
                planned = Budget(trials=len(trials))
                self._works = {**self._works, name: replace(work, budget=planned, tally=Tally.of(trials))}

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._pace[search_of(running.study.name), running.loss].append(record["end"] - record["start"])
        if time.monotonic() - self._printed <= QUIET_S or self._live:
            return
        if (trained := len(epochs_of(running.stored))) < (most := running.spec.epochs):
            name = f"{search_of(running.study.name)}/{running.loss}"
            self._print(f"{name} trial {_trained(running)}: epoch {trained} of {most}")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        say(self._console, [printable(line)], style=None)

    def on_lost(self, running: RunningTrial) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if key != _key(running)}

    def on_workers(self, workers: int) -> None:
        """Estimate the time left for this many trials at once."""
        self._concurrent = workers

    def on_end(self, running: RunningTrial) -> None:
        """Clear the trial's slot; without a terminal, print its outcome; pruned ones are a number in the next."""
        self.on_lost(running)
        budget, study = running.queued.budget, running.study
        if not self._live and (
            running.stored.state is not TrialState.PRUNED or budget.done(study.trials(), study.tally)
        ):
            self._print(self._line(running))

    def seconds_left(self) -> float | None:
        """Return the estimated time of all remaining stages; None before the first trial has ended."""
        if not any(work.tally.ended for work in self._works.values()):
            return None
        order = list(Stage)
        begun = order.index(self._stage) if self._stage else 0
        works = [work for work in self._works.values() if order.index(work.stage) >= begun]
        return seconds_left(works, self._pace, self._concurrent)

    def _line(self, running: RunningTrial) -> str:
        work, trial = self._works[running.study.name], running.stored
        value = "" if trial.value is None else score_text(running.study.objective, trial.value)
        if work.stage is Stage.SEARCH or not value:
            value = ", ".join(filter(None, (value, trial.user_attrs.get("outcome", ""))))
        elif running.spec.validation_classes:
            classes = counted(len(running.spec.validation_classes), "class", "classes")
            split = self._searches[search_of(work.study)].plan.split
            same = "half" in running.spec.origin and {*running.spec.validation_classes} == {*split.validation}
            value += f" ({classes}{', those of the search' if same else ''})"
        else:
            value = f"training loss {-(trial.value or 0):.4f}"
        pruned = f", {work.tally.pruned} pruned" if work.tally.pruned else ""
        best = ""
        if work.stage is Stage.SEARCH and work.tally.best is not None:
            best = f"; best {score_text(running.study.objective, work.tally.best)}"
        return (
            f"{VERBS[work.stage]}{search_of(work.study)}/{running.loss} trial {_trained(running)}: {value} "
            f"[{work.tally.ended}/{work.budget.most}{pruned}{best}; {self._left()}]"
        )

    @property
    def _learns_less(self) -> bool:
        """True if the confirmation learns from half of the classes, and the search learned from more."""
        plans = [search.plan for search in self._searches.values()]
        return any(plan.on_halves and len(plan.split.train) > len(plan.split.validation) for plan in plans)

    def _left(self) -> str:
        of = f"; {self._concurrent} of {self._all} workers" if self._concurrent < self._all else ""
        return time_left(self.seconds_left()) + of

    def rendered(self) -> RenderableType:
        size = self._console.size
        works = [work for work in self._works.values() if work.stage is self._stage and work.budget.most]
        slots = sorted(self._slots.items(), key=lambda entry: entry[0])
        title = TITLES[self._stage] if self._stage else "Starting workers"
        if self._classes:
            title += f", validated on {counted(self._classes, 'class', 'classes')}"
        if self._stage is Stage.SELECT and self._learns_less:
            title += " (values are lower)"
        return view(
            title,
            time.time() - self._started,
            self._left(),
            [self._study_cells(work) for work in works],
            [_slot_cells(running) for _, running in slots[: size.height]],
            slots=len(slots),
            width=size.width,
            height=size.height,
        )

    def _study_cells(self, work: Work) -> Cells:
        tally = work.tally
        name = f"{search_of(work.study)}/{work.loss}" if len(self._searches) > 1 else work.loss
        # Other stages have other classes, whose values cannot be compared with those of the search.
        best = tally.best if work.stage is Stage.SEARCH else None
        numbers = map(str, (tally.running, tally.pruned, tally.failed))
        objective = self._searches[search_of(work.study)].config.objective
        return name, f"{tally.ended}/{work.budget.most}", *numbers, score_text(objective, best)


def _trained(running: RunningTrial) -> str:
    """Return the number of the trial whose configuration is trained, and what of it, such as its half and seed."""
    origin = running.spec.origin
    parts = [f"{name} {origin[name]}" for name in ("half", "fold") if name in origin]
    parts += [] if running.stage is Stage.SEARCH else [f"seed {running.spec.seed}"]
    return ", ".join([str(origin.get("source_trial", running.number)), *parts])


def _key(running: RunningTrial) -> tuple[str, int]:
    return running.study.name, running.number


def _slot_cells(running: RunningTrial) -> Cells:
    objective, epochs, trial = running.study.objective, running.spec.epochs, running.stored
    values, reached = [value_in(record, objective) for record in epochs_of(trial)], trial.intermediate_values
    rung, bar = (running.study.next_rung(running.number) if running.queued.prune else None) or (None, None)
    passes = "" if bar is None else f"{score_text(objective, bar)} "  # None before other trials have reached the rung
    following = NOTHING if rung is None or rung >= epochs else f"{passes}at {rung}"
    value = score_text(objective, reached[max(reached)] if reached else None)
    name = f"{running.loss} {_trained(running)}"
    return name, f"{len(values)}/{epochs}", value, following, sparkline(values, CURVE)


# What else follows the events of a trial.

STILL_WRITING = 50
"""Most trials that ended early and are measured again: their workers, one a slot, may still write a checkpoint."""


class FolderCheck(TrialListener):
    """Listener that ends the run if the folder of ``search`` was moved: trials would be written to two places."""

    def __init__(self, search: Records) -> None:
        self._folder = search.folder

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._folder.raise_if_moved()


class MlflowUpdates(TrialListener):
    """Listener that passes every changed trial to ``tracker``, which writes from the first new epoch on."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def on_start(self, running: RunningTrial) -> None:
        self._tracker.mark(running.study.name, running.stored, begin=False)

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._tracker.mark(running.study.name, running.stored)

    def on_end(self, running: RunningTrial) -> None:
        self._tracker.mark(running.study.name, running.stored)


class CheckpointCleanup(TrialListener):
    """Listener that removes resume checkpoints after each trial, and the worst trials' models beyond the limit.

    The limit ``checkpoints.max_gb`` is for the models of the search stage; those of other stages are never removed.
    """

    def __init__(self, search: Records) -> None:
        gigabytes = search.config.checkpoints.max_gb
        self._limit = None if gigabytes is None else gigabytes * 1e9
        self._search = search
        self._bytes: dict[str, int] | None = None  # size of the models by trial directory; None until listed
        self._values: dict[str, float] = {}
        self._ended_early: deque[str] = deque(maxlen=min(STILL_WRITING, search.slots))
        self._left: list[RunningTrial] = []

    def on_end(self, running: RunningTrial) -> None:
        """Clean up after a trial of this search. If the storage is unreachable, retry after the next trial."""
        if search_of(running.study.name) != self._search.name:
            return
        self._left.append(running)
        try:
            while self._left:
                with storage_errors(as_path(running.spec.directory)):
                    self._clean(self._left[0])
                del self._left[0]
        except StorageFailure as failure:  # no reason to fail the trial
            trials = counted(len(self._left), "trial")
            logger.warning("Checkpoints of %s are not cleaned up; retrying after the next trial: %s", trials, failure)

    def _clean(self, running: RunningTrial) -> None:
        directory = running.spec.directory
        forget_last(directory)
        if self._limit is None:
            return
        if self._bytes is None:
            self._bytes = self._measure_earlier()
        again = set(self._ended_early)
        if running.stage is Stage.SEARCH:
            self._values[directory] = -math.inf if running.stored.value is None else running.stored.value
            again.add(directory)
            if running.stored.state != TrialState.COMPLETE:  # its last model may still be written
                self._ended_early.append(directory)
        for ended in again:
            self._bytes[ended] = sum(path.stat().st_size for path in _models(as_path(ended)))
        total = sum(self._bytes.values())
        while total > self._limit:
            worst = min((directory for directory, size in self._bytes.items() if size), key=self._values.__getitem__)
            for path in _models(as_path(worst)):
                path.unlink(missing_ok=True)
            total -= self._bytes.pop(worst)

    def _measure_earlier(self) -> dict[str, int]:
        """Return the bytes of the models of all ended trials, also of earlier sessions, with one listing per loss."""
        found: dict[str, int] = {}
        for loss in self._search.config.loss_names:
            ended = {trial.number: trial for trial in self._search.trials(loss) if trial.state.is_finished()}
            parent = as_path(trial_directory(self._search.plan, loss, Stage.SEARCH, 0)).parent
            for path in _models(parent):
                number = int(path.parts[len(parent.parts)])
                if number in ended:  # a running trial counts when it ends
                    directory = trial_directory(self._search.plan, loss, Stage.SEARCH, number)
                    value = ended[number].value
                    self._values[directory] = -math.inf if value is None else value
                    found[directory] = found.get(directory, 0) + path.stat().st_size
        return found


def _models(folder: AnyPath) -> list[AnyPath]:
    """Return the best models at any depth below ``folder``: cross-validation has one per fold."""
    return ask(folder, lambda: list(folder.rglob(f"attempt-*/{BEST}")))
