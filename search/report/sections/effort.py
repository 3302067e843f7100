"""The section on time and epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.plan.stored import StoredSearch
from search.report.drawing import (
    BAD,
    COLOURS,
    FAINT,
    Figure,
    Section,
    drawn,
    label_rows,
    named_losses,
    plotted,
)
from search.report.results import Summary
from search.report.sections.searched import LOOKS, MOST_ROWS, left_out_note
from search.report.sections.value_by_used import value_by_used
from search.report.text_table import NOTHING, TextTable
from search.stages import Stage, short_study_name
from search.trials import epochs_of, epochs_trained
from trainables.mistakes import counted

# The epochs of complete, pruned and failed trials, and of the later stages.

_PARTS = {
    "search (complete)": (COLOURS[0], ""),
    "search (pruned)": (FAINT, "//"),
    "search (failed)": (BAD, "xx"),
    "search (running)": (COLOURS[5], ".."),
    "confirmation": (COLOURS[2], ""),
    "final": (COLOURS[3], "\\\\"),
    "noise": (COLOURS[4], ".."),
}
_STAGES = {
    Stage.SELECT: "confirmation",
    Stage.TEST: "final",
    Stage.NOISE: "noise",
}


def epochs_by_outcome(searches: Sequence[StoredSearch]) -> Figure | None:
    """Draw a bar of epochs per loss; None before an epoch ended."""
    bars = {label: _epochs(search, loss) for label, search, loss in named_losses(searches)}
    total = sum(sum(parts.values()) for parts in bars.values())
    if not total:
        return None
    shown = [part for part in _PARTS if any(parts[part] for parts in bars.values())]
    with drawn("epochs-by-outcome", 110 + 26 * len(bars)) as canvas:
        axes = canvas.axes
        left = [0] * len(bars)
        for part in shown:
            colour, hatch = _PARTS[part]
            widths = [parts[part] for parts in bars.values()]
            axes.barh(range(len(bars)), widths, left=left, color=colour, hatch=hatch, edgecolor="white", label=part)
            left = [before + width for before, width in zip(left, widths, strict=True)]
        label_rows(axes, list(bars), "epochs")
        canvas.axes.figure.legend(loc="outside lower left", ncols=3)
    sums = {part: sum(parts[part] for parts in bars.values()) for part in shown}
    return Figure(
        name="epochs-by-outcome",
        title="Epochs by outcome",
        finding=f"{counted(total, 'epoch')}: " + ", ".join(f"{epochs:,} {part}" for part, epochs in sums.items()) + ".",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *shown),
            rows=tuple((label, *(f"{parts[part]:,}" for part in shown)) for label, parts in bars.items()),
            labels=1,
        ),
    )


def _epochs(search: StoredSearch, loss: str) -> dict[str, int]:
    parts = dict.fromkeys(_PARTS, 0)
    for trial in search.trials(loss):
        parts[f"search ({_state(trial)})"] += epochs_trained([trial])
    for stage, part in _STAGES.items():
        parts[part] += epochs_trained(search.trials(loss, stage))
    return parts


def _state(trial: FrozenTrial) -> str:
    return LOOKS.get(trial.state, LOOKS[TrialState.RUNNING]).name


# The timeline of the slots.


@dataclass(frozen=True, kw_only=True)
class _Training:
    name: str
    state: str
    start: float
    end: float
    epochs: int


def timeline(searches: Sequence[StoredSearch]) -> Figure | None:
    """Draw each training as a bar from the start of its first epoch to the end of its last; None before an epoch ended.

    Waiting time after an interruption is part of the bar.
    """
    trainings = sorted(_trainings(searches), key=lambda training: training.start)
    if not trainings:
        return None
    slots = _slots(trainings)
    begin = trainings[0].start
    traces: list[dict[str, Any]] = []
    for state, colour, _ in LOOKS.values():
        bars = [(training, slot) for training, slot in zip(trainings, slots, strict=True) if training.state == state]
        if bars:
            traces.append(
                {
                    "type": "bar",
                    "name": state,
                    "orientation": "h",
                    "base": [round(training.start - begin, 2) for training, _ in bars],
                    "x": [round(training.end - training.start, 2) for training, _ in bars],
                    "y": [slot + 1 for _, slot in bars],
                    "text": [escape(training.name) for training, _ in bars],
                    "textposition": "none",
                    "hovertemplate": "%{text}, %{base:.0f} s, for %{x:.0f} s<extra>" + state + "</extra>",
                    "marker": {"color": colour, "line": {"width": 0.5, "color": "white"}},
                }
            )
    layout = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": "seconds since the start of the first epoch"}},
        "yaxis": {"title": {"text": "slot"}, "dtick": 1 if max(slots) < 20 else None, "autorange": "reversed"},
    }
    count, used = max(slots) + 1, sum(training.end - training.start for training in trainings)
    span = max(training.end for training in trainings) - begin
    return Figure(
        name="timeline",
        title="Timeline of the slots",
        finding=(
            f"{counted(len(trainings), 'training')} in {span:,.0f} s; {counted(count, 'slot')} used, training "
            f"{100 * used / (count * span):.0f} % of the time."
        ),
        picture=plotted(traces, layout, height=min(140 + 26 * count, 700)),
        table=_table(trainings, begin),
        wide=True,
    )


def _trainings(searches: Sequence[StoredSearch]) -> list[_Training]:
    return [
        _training(f"{short_study_name(label, stage)} {trial.number}", trial)
        for stage in Stage
        for label, search, loss in named_losses(searches)
        for trial in search.trials(loss, stage)
        if epochs_of(trial)
    ]


def _training(name: str, trial: FrozenTrial) -> _Training:
    records = epochs_of(trial)
    return _Training(
        name=name,
        state=_state(trial),
        start=records[0]["start"],
        end=records[-1]["end"],
        epochs=len(records),
    )


def _slots(trainings: Sequence[_Training]) -> list[int]:
    """Assign each training, in the order of their starts, the first slot that is free then."""
    free: list[float] = []
    slots = []
    for training in trainings:
        slot = next((slot for slot, end in enumerate(free) if end <= training.start), len(free))
        free[slot : slot + 1] = [training.end]
        slots.append(slot)
    return slots


def _table(trainings: Sequence[_Training], begin: float) -> TextTable:
    return TextTable(
        title="",
        header=("training", "start, s", "duration, s", "epochs", "outcome"),
        rows=tuple(
            (
                training.name,
                f"{training.start - begin:.1f}",
                f"{training.end - training.start:.1f}",
                str(training.epochs),
                training.state,
            )
            for training in trainings[:MOST_ROWS]
        ),
        labels=1,
        notes=left_out_note(len(trainings) - MOST_ROWS),
    )


# The section.


def effort(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Section:
    """Return the timeline of the slots, epochs by outcome, and values by sampled pairs or triplets."""
    figures = (
        timeline(searches),
        epochs_by_outcome(searches),
        value_by_used(searches, summaries),
    )
    return Section(
        name="effort",
        title="Time and epochs",
        results=(_times(summaries),),
        figures=tuple(figure for figure in figures if figure),
        pending=() if any(figures) else ("No epoch has been trained.",),
    )


def _times(summaries: Sequence[Summary]) -> TextTable:
    return TextTable(
        title="Time in seconds",
        header=("search", "total", "start-up", "search stage", "slots", "training per slot"),
        rows=tuple(
            (
                summary.name,
                f"{time.wall_s:,.0f}",
                f"{time.startup_s:,.0f}",
                f"{time.search_wall_s:,.0f}",
                str(time.slots),
                f"{time.trial_work_s / time.slots:,.0f}" if time.slots else NOTHING,
            )
            for summary in summaries
            for time in (summary.time,)
        ),
        labels=1,
    )
