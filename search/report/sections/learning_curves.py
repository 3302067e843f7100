"""Figure: learning curves and rungs."""

from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import COLOURS, Figure, buttons, hover_text, plotted, rounded, scatter, vertical
from search.report.sections.searched import (
    DEFAULT,
    LOOKS,
    MOST_ROWS,
    SearchedLoss,
    hover,
    is_complete,
    last_step,
    left_out_note,
    title,
    value_of,
)
from search.report.text_table import NOTHING, TextTable
from search.trials import ByFold
from trainables.mistakes import counted

_TOPS = (5, 10)
"""Numbers of best trials that buttons select."""


def learning_curves(searched: SearchedLoss) -> Figure | None:
    """Plot the objective of each trial after each epoch; None before any epoch.

    The curves are measured values, not running maxima: a trial's value is the maximum of its curve. In a
    cross-validation there is one point per fold, the mean of the folds so far.
    """
    trials = searched.valued
    if not trials:
        return None
    groups = [trials[first:last] for first, last in zip((0, *_TOPS), (*_TOPS, None))]
    traces: list[dict[str, Any]] = []
    ranks: list[int] = []  # the group of each trace
    shown: set[TrialState] = set()
    for rank, group in enumerate(groups):
        for state in LOOKS:
            if of_state := [trial for trial in group if trial.state == state]:
                traces += _curves(searched, of_state, state, legend=state not in shown)
                ranks += [rank, rank]
                shown.add(state)
    special = {DEFAULT: ("default", COLOURS[1], "dash"), searched.chosen: (searched.chosen_word, COLOURS[2], "solid")}
    for trial in trials:
        if trial.number in special:
            traces.append(_highlighted(searched, trial, *special[trial.number]))
            ranks.append(0)
    return Figure(
        name=f"{searched.name}-learning-curves",
        title="Learning curves",
        finding=_finding(searched),
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": searched.unit}, "dtick": 1 if searched.steps <= 20 else None},
                "yaxis": {"title": {"text": searched.objective}},
                "shapes": [vertical(rung) for rung in searched.rungs],
                "updatemenus": _filters(len(trials), ranks),
            },
        ),
        table=_table(searched),
        wide=True,
    )


def curve(searched: SearchedLoss, trial: FrozenTrial) -> tuple[list[int], list[float]]:
    """Return the steps of a trial and the value measured after each."""
    if searched.unit == ByFold.unit:
        steps = sorted(trial.intermediate_values)
        return steps, [rounded(trial.intermediate_values[step]) for step in steps]
    records = searched.records[trial.number]
    return [record["epoch"] for record in records], [
        rounded(record["metrics"][searched.objective]) for record in records
    ]


def _curves(
    searched: SearchedLoss, trials: Sequence[FrozenTrial], state: TrialState, *, legend: bool
) -> list[dict[str, Any]]:
    """Return two traces: the curves of ``trials`` as one line with gaps, and their ends with the hover texts."""
    name, colour, mark = LOOKS[state]
    x: list[int | None] = []
    y: list[float | None] = []
    numbers: list[int | None] = []
    ends_x, ends_y = [], []
    for trial in trials:
        steps, values = curve(searched, trial)
        x += [*steps, None]
        y += [*values, None]
        numbers += [trial.number] * len(steps) + [None]
        ends_x.append(steps[-1])
        ends_y.append(values[-1])
    lines = scatter(
        name,
        "lines",
        x,
        y,
        legendgroup=name,
        showlegend=False,
        customdata=numbers,
        line={"color": colour, "width": 1},
        opacity=0.55,
        hovertemplate=f"trial %{{customdata}}, {searched.unit} %{{x}}: %{{y:.4f}}<extra></extra>",
    )
    ends = scatter(
        name,
        "markers",
        ends_x,
        ends_y,
        legendgroup=name,
        showlegend=legend,
        marker={"color": colour, "symbol": mark, "size": 6},
        **hover_text([hover(searched, trial) for trial in trials]),
    )
    return [lines, ends]


def _highlighted(searched: SearchedLoss, trial: FrozenTrial, name: str, colour: str, dash: str) -> dict[str, Any]:
    steps, values = curve(searched, trial)
    return scatter(name, "lines", steps, values, line={"color": colour, "width": 3, "dash": dash}, hoverinfo="skip")


def _filters(count: int, ranks: Sequence[int]) -> list[dict[str, Any]]:
    """Return buttons that show only the best trials; the default and the chosen one always stay."""
    tops = [(place, top) for place, top in reversed(list(enumerate(_TOPS))) if count > top]
    entries = [("all", "restyle", [{"visible": [True] * len(ranks)}])]
    for place, top in tops:
        entries.append((f"best {top}", "restyle", [{"visible": [rank <= place for rank in ranks]}]))
    return buttons(*entries) if tops else []


def _finding(searched: SearchedLoss) -> str:
    complete = [trial for trial in searched.valued if is_complete(trial)]
    unit, best = searched.unit, searched.valued[0]
    trained = f"{len(complete)} of {counted(len(searched.valued), 'trial')} trained all {counted(searched.steps, unit)}"
    reached = [
        f"{sum(rung in trial.intermediate_values for trial in searched.valued)} reached {unit} {rung}"
        for rung in searched.rungs
    ]
    rungs = f", {', '.join(reached)} (dotted: rungs, where trials are compared)" if reached else ""
    return f"{trained}{rungs}; the best, {title(searched, best)}, reached {value_of(best):.4f}."


def _table(searched: SearchedLoss) -> TextTable:
    steps = (*searched.rungs, searched.steps)
    values = "means of the folds so far" if searched.unit == ByFold.unit else "each value is the highest so far"
    return TextTable(
        title="",
        header=("trial", *(f"{searched.unit} {step}" for step in steps), f"last {searched.unit}"),
        rows=tuple(
            (
                title(searched, trial),
                *(
                    f"{trial.intermediate_values[step]:.4f}" if step in trial.intermediate_values else NOTHING
                    for step in steps
                ),
                str(last_step(trial)),
            )
            for trial in searched.valued[:MOST_ROWS]
        ),
        labels=1,
        notes=(values, *left_out_note(len(searched.valued) - MOST_ROWS)),
    )
