"""The progress of a search: counts, values and the time left, shown in the terminal."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState
from rich.console import Console, RenderableType
from rich.live import Live

from search.driver.progress_view import Cells, MovingLine, in_notebook, time_left, view
from search.plan.records import Records
from search.plan.work import Pace, Work, planned_work, seconds_left
from search.stages import Stage, search_of
from search.study import Budget, RunningTrial, TrialListener
from search.text_table import NOTHING, sparkline
from search.trials import Tally, epochs_of, value_in
from trainables.common.errors import counted, printable
from trainables.metrics import score_text
from trainables.training.spec import EpochRecord

TITLES = {Stage.SEARCH: "Searching", Stage.SELECT: "Confirming the finalists", Stage.TEST: "Training for the test"}
CURVE = 16
"""Number of epochs in a slot's curve."""
QUIET_S = 30.0
"""Without a terminal, a line on an epoch follows after this time without one."""
VERBS = {Stage.SEARCH: "", Stage.SELECT: "confirming ", Stage.TEST: "training for the test: "}


class Progress(TrialListener, AbstractContextManager["Progress"]):
    """Listener that shows the queue's trials: a live table on a terminal, one moving line in a notebook, elsewhere one
    line per finished trial.

    The time left covers all remaining ``stages``, except scoring the test, with ``concurrent`` trials at once; the
    command began at ``started``, in seconds since 1970.
    """

    def __init__(
        self,
        console: Console,
        searches: Sequence[Records],
        stages: Sequence[Stage],
        *,
        concurrent: int,
        started: float,
    ) -> None:
        self._console = console
        self._searches = {search.name: search for search in searches}
        self._all = self._concurrent = concurrent
        self._started = started
        self._printed = time.monotonic()
        self._stage: Stage | None = None
        self._classes = 0  # the most that validate a training of the stage
        self._tests = Stage.TEST in stages
        # The drawing thread reads these dictionaries, so they are replaced and never changed in place.
        works = (work for search in searches for work in planned_work(search.plan, stages, search.trials))
        self._works = {work.study: work for work in works}
        self._slots: dict[tuple[str, int], tuple[RunningTrial, tuple[float, ...]]] = {}
        self._pace = Pace(searches)
        # Redrawn at a fixed rate: hundreds of slots report every few milliseconds.
        live = Live(console=console, get_renderable=self.rendered, refresh_per_second=4, transient=True)
        self._live = live if console.is_terminal else None
        self._moving = MovingLine(console.file) if in_notebook(console.file) and not console.quiet else None

    def __enter__(self) -> "Progress":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live:
            self._live.stop()
        if self._moving:
            self._moving.end()

    def on_start(self, running: RunningTrial) -> None:
        """Show the trial, and the title of its stage if it is the first one of it."""
        if running.stage is not self._stage:
            self._begin(running.stage)
        study, budget, work = running.study, running.queued.budget, self._works[running.study.name]
        if work.tally is not study.tally or work.budget is not budget:
            live = replace(work, budget=budget, tally=study.tally, epochs_each=running.spec.epochs)
            self._works = {**self._works, study.name: live}
        self._classes = max(self._classes, *map(len, (running.spec.validation_classes, *running.spec.folds)))
        self._slots = {
            **self._slots,
            _key(running): (running, tuple(map(_value_of(running), epochs_of(running.stored)))),
        }

    def _begin(self, stage: Stage) -> None:
        """Begin a stage. Every stage except the search has all of its trials enqueued now, so their number is known."""
        self._stage, self._classes = stage, 0
        if self._moving:
            self._moving.end()
        if not self._live:
            lower = "; each learned from half of the classes, so values may be lower than in the search"
            halves = lower * (stage is Stage.SELECT and self._learns_less)
            self._console.print(f"{TITLES[stage]} …{halves}", style="dim", highlight=False, soft_wrap=True)
        if stage is Stage.SEARCH:
            return
        for name, work in self._works.items():
            if work.stage is stage:
                trials = self._searches[search_of(name)].trials(work.loss, stage)
                planned = Budget(trials=len(trials))
                self._works = {**self._works, name: replace(work, budget=planned, tally=Tally.of(trials))}

    def on_epoch(self, running: RunningTrial, record: EpochRecord) -> None:
        self._pace.add(search_of(running.study.name), running.loss, record["end"] - record["start"])
        _, values = self._slots.get(_key(running), (running, ()))  # never fail the training over its display
        values = (*values, _value_of(running)(record))
        self._slots = {**self._slots, _key(running): (running, values)}
        most, quiet = running.spec.epochs, time.monotonic() - self._printed > QUIET_S
        if quiet and len(values) < most and not self._live and not self._moving:
            name = f"{search_of(running.study.name)}/{running.loss}"
            self._print(f"{name} trial {_trained(running)}: epoch {len(values)} of {most}")

    def _print(self, line: str) -> None:
        self._printed = time.monotonic()
        self._console.print(printable(line), highlight=False, markup=False, soft_wrap=True)

    def on_lost(self, running: RunningTrial) -> None:
        self._slots = {key: slot for key, slot in self._slots.items() if key != _key(running)}

    def on_workers(self, workers: int) -> None:
        """Estimate the time left for this many trials at once."""
        self._concurrent = workers

    def on_end(self, running: RunningTrial) -> None:
        """Clear the trial's slot; without a terminal, print its outcome; pruned ones are a number in the next."""
        self.on_lost(running)
        trial = running.stored
        line = "" if self._live else self._line(running, trial)
        if self._moving:
            self._moving.show(printable(line))
        elif not self._live and (
            trial.state is not TrialState.PRUNED
            or running.queued.budget.done(running.study.trials(), running.study.tally)
        ):
            self._print(line)

    def seconds_left(self) -> float | None:
        """Return the estimated time of all remaining stages; None before the first trial has ended."""
        if not any(work.tally.ended for work in self._works.values()):
            return None
        order = list(Stage)
        begun = order.index(self._stage) if self._stage else 0
        works = [work for work in self._works.values() if order.index(work.stage) >= begun]
        return seconds_left(works, self._pace.means(), self._concurrent)

    def _line(self, running: RunningTrial, trial: FrozenTrial) -> str:
        work, trained = self._works[running.study.name], _trained(running)
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
        best = (
            f"; best {score_text(running.study.objective, work.tally.best)}"
            if work.stage is Stage.SEARCH and work.tally.best is not None
            else ""
        )
        return (
            f"{VERBS[work.stage]}{search_of(work.study)}/{running.loss} trial {trained}: {value} "
            f"[{work.tally.ended}/{work.budget.most}{pruned}{best}; {self._left()}]"
        )

    @property
    def _learns_less(self) -> bool:
        """True if the confirmation learns from half of the classes, and the search learned from more."""
        plans = [search.plan for search in self._searches.values()]
        return any(plan.on_halves and len(plan.split.train) > len(plan.split.validation) for plan in plans)

    def _left(self) -> str:
        of = f"; {self._concurrent} of {self._all} workers" if self._concurrent < self._all else ""
        return time_left(self.seconds_left(), tests=self._tests) + of

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
            [_slot_cells(running, values) for _, (running, values) in slots[: size.height]],
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


def _value_of(running: RunningTrial) -> Callable[[EpochRecord], float]:
    """Return a function from an epoch to its objective, or to minus its training loss without validation."""
    objective = running.study.objective
    return lambda record: value_in(record, objective)


def _slot_cells(running: RunningTrial, values: Sequence[float]) -> Cells:
    objective, spec, reached = (
        running.study.objective,
        running.spec,
        running.study.trial(running.number).intermediate_values,
    )
    rung, bar = (running.study.next_rung(running.number) if running.queued.prune else None) or (None, None)
    passes = "" if bar is None else f"{score_text(objective, bar)} "  # None before other trials have reached the rung
    following = NOTHING if rung is None or rung >= spec.epochs else f"{passes}at {rung}"
    name, value = (
        f"{running.loss} {_trained(running)}",
        score_text(objective, reached[max(reached)] if reached else None),
    )
    return name, f"{len(values)}/{spec.epochs}", value, following, sparkline(values, CURVE)
