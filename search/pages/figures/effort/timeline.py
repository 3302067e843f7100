"""When each slot trained what."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.pages.figure import Figure
from search.pages.ink import BAD, COLOURS, FAINT
from search.pages.labels import named_losses
from search.pages.plotted import plotted
from search.plan.stored import StoredSearch
from search.report.tables.text_table import TextTable
from search.study.names import Stage, short_study_name
from search.study.records import epochs_of

_COLOURS = {"complete": COLOURS[0], "pruned": FAINT, "failed": BAD, "running": COLOURS[2]}
_OUTCOMES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


@dataclass(frozen=True, kw_only=True)
class _Training:
    name: str
    outcome: str
    start: float
    end: float
    epochs: int


def timeline(searches: Sequence[StoredSearch]) -> Figure | None:
    """Every training as a bar from its first epoch's start to its last one's end; None before an epoch ended.

    What a training waited for after a kill lies within its bar.
    """
    trainings = sorted(_trainings(searches), key=lambda training: training.start)
    if not trainings:
        return None
    slots = _slots(trainings)
    begin = trainings[0].start
    traces: list[dict[str, Any]] = []
    for outcome, colour in _COLOURS.items():
        bars = [
            (training, slot) for training, slot in zip(trainings, slots, strict=True) if training.outcome == outcome
        ]
        if bars:
            traces.append(
                {
                    "type": "bar",
                    "name": outcome,
                    "orientation": "h",
                    "base": [round(training.start - begin, 2) for training, _ in bars],
                    "x": [round(training.end - training.start, 2) for training, _ in bars],
                    "y": [slot + 1 for _, slot in bars],
                    "text": [escape(training.name) for training, _ in bars],
                    "textposition": "none",
                    "hovertemplate": "%{text}, %{base:.0f} s, for %{x:.0f} s<extra>" + outcome + "</extra>",
                    "marker": {"color": colour, "line": {"width": 0.5, "color": "white"}},
                }
            )
    layout = {
        "barmode": "overlay",
        "xaxis": {"title": {"text": "seconds since the first epoch began"}},
        "yaxis": {"title": {"text": "slot"}, "dtick": 1 if max(slots) < 20 else None, "autorange": "reversed"},
    }
    count, used = max(slots) + 1, sum(training.end - training.start for training in trainings)
    span = max(training.end for training in trainings) - begin
    return Figure(
        name="timeline",
        title="What each slot trained",
        finding=(
            f"{len(trainings)} trainings within {span:,.0f} s; on the {count} slots that were used at once, "
            f"{100 * used / (count * span):.0f} % of the time was training."
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
        outcome=_OUTCOMES.get(trial.state, "running"),
        start=records[0]["start"],
        end=records[-1]["end"],
        epochs=len(records),
    )


def _slots(trainings: Sequence[_Training]) -> list[int]:
    """A slot for each training, in the order of their starts: the first that is free then."""
    free: list[float] = []
    slots = []
    for training in trainings:
        slot = next((slot for slot, end in enumerate(free) if end <= training.start), len(free))
        free[slot : slot + 1] = [training.end]
        slots.append(slot)
    return slots


def _table(trainings: Sequence[_Training], begin: float) -> TextTable:
    shown = trainings[:200]
    left_out = len(trainings) - len(shown)
    return TextTable(
        title="",
        header=("training", "began after, s", "took, s", "epochs", "ended"),
        rows=tuple(
            (
                training.name,
                f"{training.start - begin:.1f}",
                f"{training.end - training.start:.1f}",
                str(training.epochs),
                training.outcome,
            )
            for training in shown
        ),
        labels=1,
        notes=(f"and {left_out} more, which `holdout trials` lists",) if left_out else (),
    )
