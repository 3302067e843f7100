"""Report section: where time and epochs went."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.plan.stored import StoredSearch
from search.report.drawing import (
    BAD,
    COLOURS,
    FAINT,
    LEGEND_BELOW,
    PLOT_MARKS,
    Figure,
    Section,
    buttons,
    colours_of,
    drawn,
    named_losses,
    plotted,
)
from search.report.results import Summary
from search.report.sections.value_by_used import value_by_used
from search.report.text_table import NOTHING, TextTable
from search.stages import Stage, short_study_name
from search.trials import epochs_of, epochs_trained

# The best value of each loss by what its search had cost until then.


def best_by_cost(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Figure | None:
    """The incumbents of every loss by epochs and, on a button, by hours of training; None before the first value."""
    by_name = {summary.name: summary for summary in summaries}
    curves = [
        (label, by_name[search.name].losses[loss].anytime, _hours(search, loss))
        for label, search, loss in named_losses(searches)
        if by_name[search.name].losses[loss].anytime
    ]
    if not curves:
        return None
    colours = colours_of([label for label, _, _ in curves])
    traces: list[dict[str, Any]] = []
    by_epochs, by_hours = [], []
    for position, (label, incumbents, hours) in enumerate(curves):
        epochs = [step.epochs for step in incumbents]
        values = [round(step.value, 6) for step in incumbents]
        by_epochs.append([*epochs, len(hours)])
        by_hours.append([round(hours[min(count, len(hours)) - 1], 4) for count in by_epochs[-1]])
        traces.append(
            {
                "type": "scatter",
                "name": escape(label),
                "x": by_epochs[-1],
                "y": [*values, values[-1]],
                "mode": "lines+markers",
                "line": {"shape": "hv", "color": colours[label]},
                "marker": {"symbol": PLOT_MARKS[position % len(PLOT_MARKS)], "size": 7},
            }
        )
    titles = ("epochs of the search", "hours of training, summed over slots")

    def shown(text: str, xs: Sequence[Sequence[float]], title: str) -> tuple[str, str, list[dict[str, Any]]]:
        return text, "update", [{"x": xs}, {"xaxis.title.text": title}]

    layout = {
        "xaxis": {"title": {"text": titles[0]}},
        "yaxis": {"title": {"text": f"best {escape(summaries[0].objective)} so far"}},
        "legend": LEGEND_BELOW,
        "updatemenus": buttons(shown("epochs", by_epochs, titles[0]), shown("hours", by_hours, titles[1])),
    }
    label, incumbents, hours = max(curves, key=lambda curve: curve[1][-1].value)
    last = incumbents[-1]
    return Figure(
        name="best-by-cost",
        title="The best value by what it cost",
        finding=(
            f"{label} has the highest value, {last.value:.4f}, reached after {last.epochs} of its {len(hours)} epochs; "
            "the best of a search flatters, and more so the longer it is."
        ),
        picture=plotted(traces, layout),
        table=TextTable(
            title="",
            header=("loss", "epochs", "hours", "best value", "trial"),
            rows=tuple(
                (label, str(step.epochs), f"{hours[step.epochs - 1]:.3f}", f"{step.value:.4f}", str(step.trial))
                for label, incumbents, hours in curves
                for step in incumbents
            ),
            labels=1,
            notes=(),
        ),
        wide=True,
    )


def _hours(search: StoredSearch, loss: str) -> list[float]:
    """The hours of training up to the end of each epoch of a loss's search, in the order in which they ended."""
    records = [record for trial in search.trials(loss) for record in epochs_of(trial)]
    ended = sorted(records, key=lambda record: record["end"])
    return list(accumulate((record["end"] - record["start"]) / 3600 for record in ended))


# How many epochs went into trials that were completed, pruned or failed, and into the later stages.

_PARTS = {
    "search, complete": (COLOURS[0], ""),
    "search, pruned": (FAINT, "//"),
    "search, failed": (BAD, "xx"),
    "search, running": (COLOURS[5], ".."),
    "confirmation": (COLOURS[2], ""),
    "for the test": (COLOURS[3], "\\\\"),
    "noise and audit": (COLOURS[4], ".."),
}
_STAGES = {
    Stage.SELECT: "confirmation",
    Stage.TEST: "for the test",
    Stage.NOISE: "noise and audit",
    Stage.AUDIT: "noise and audit",
}
_STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


def epochs_by_outcome(searches: Sequence[StoredSearch]) -> Figure | None:
    """Bars of epochs, one a loss; None before an epoch ended."""
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
        axes.set_yticks(range(len(bars)), list(bars))
        axes.invert_yaxis()
        axes.set_xlabel("epochs", color=FAINT)
        canvas.axes.figure.legend(loc="outside lower left", ncols=3)
    sums = {part: sum(parts[part] for parts in bars.values()) for part in shown}
    return Figure(
        name="epochs-by-outcome",
        title="Epochs by what became of them",
        finding=f"Of {total:,} epochs: " + ", ".join(f"{epochs:,} {part}" for part, epochs in sums.items()) + ".",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("loss", *shown),
            rows=tuple((label, *(f"{parts[part]:,}" for part in shown)) for label, parts in bars.items()),
            labels=1,
            notes=(),
        ),
    )


def _epochs(search: StoredSearch, loss: str) -> dict[str, int]:
    parts = dict.fromkeys(_PARTS, 0)
    for trial in search.trials(loss):
        parts[f"search, {_STATES.get(trial.state, 'running')}"] += epochs_trained([trial])
    for stage, part in _STAGES.items():
        parts[part] += epochs_trained(search.trials(loss, stage))
    return parts


# When each slot trained what.

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


# Where time and epochs went.


def effort(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Section:
    """When each slot trained what, the epochs by how their trials ended, the best value by what it had cost, and
    the values of single trials by what their losses used.
    """
    figures = (
        timeline(searches),
        epochs_by_outcome(searches),
        best_by_cost(searches, summaries),
        value_by_used(searches, summaries),
    )
    return Section(
        name="effort",
        title="Where time and epochs went",
        tables=(_times(summaries),),
        figures=tuple(figure for figure in figures if figure),
        missing=() if any(figures) else ("No epoch was trained yet.",),
    )


def _times(summaries: Sequence[Summary]) -> TextTable:
    return TextTable(
        title="Seconds",
        header=("search", "in all", "before a first epoch", "searching", "slots", "trained in each"),
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
        notes=(),
    )
