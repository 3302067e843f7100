"""Figure: the trials of a search by several objectives and constraints, with the Pareto front."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from search.goal import Goal, Measured
from search.report.drawing import BAD, COLOURS, FAINT, Figure, hover_text, plotted, rounded, scatter
from search.report.sections.searched import MOST_ROWS, SearchedLoss, hover, in_state, left_out_note, title
from search.report.text_table import TextTable
from trainables.mistakes import counted


def front(searched: SearchedLoss) -> Figure | None:
    """Plot the first objective of each complete trial against the second metric of the goal.

    The second metric is that of the second objective, or without one that of the first constraint. The result is None
    if one metric decides alone, or before the first trial is complete.
    """
    goal = searched.goal
    complete = in_state(searched.trials, TrialState.COMPLETE)
    if goal.is_plain or len(goal.metrics) < 2 or not complete:
        return None
    measured = [goal.measured(trial) for trial in complete]
    best = goal.front(measured)
    unmet = [place for place, values in enumerate(measured) if goal.unmet(values)]
    behind = [place for place in range(len(complete)) if place not in best and place not in unmet]
    down, across = goal.metrics[:2]
    traces = [
        scatter(
            name,
            "markers",
            [rounded(measured[place][across]) for place in places],
            [rounded(measured[place][down]) for place in places],
            marker={"color": colour, "symbol": mark, "size": 8},
            **hover_text([hover(searched, complete[place]) for place in places]),
        )
        for name, places, colour, mark in (
            ("on the front", best, COLOURS[0], "circle"),
            ("behind it", behind, FAINT, "circle-open"),
            ("beyond a constraint", unmet, BAD, "x"),
        )
        if places
    ]
    return Figure(
        name=f"{searched.name}-front",
        title="Objectives and constraints",
        finding=_finding(goal, len(complete), len(best), len(unmet)),
        picture=plotted(traces, {"xaxis": {"title": {"text": across}}, "yaxis": {"title": {"text": down}}}),
        table=_table(searched, [complete[place] for place in best], [measured[place] for place in best]),
    )


def _finding(goal: Goal, complete: int, best: int, unmet: int) -> str:
    met = f"; {unmet} {'does' if unmet == 1 else 'do'} not meet the constraints" if goal.constraints else ""
    which = f"{best} {'is' if best == 1 else 'are'} on the Pareto front" if len(goal.objectives) > 1 else ""
    said = "; ".join(part for part in (f"{counted(complete, 'complete trial')}{met}", which) if part)
    return f"{said}. Rule of the choice: {goal.rule}."


def _table(searched: SearchedLoss, trials: Sequence[FrozenTrial], measured: Sequence[Measured]) -> TextTable:
    metrics = searched.goal.metrics
    return TextTable(
        title="",
        header=("trial", *metrics),
        rows=tuple(
            (title(searched, trial), *(f"{values[metric]:.4g}" for metric in metrics))
            for trial, values in list(zip(trials, measured, strict=True))[:MOST_ROWS]
        ),
        labels=1,
        notes=left_out_note(len(trials) - MOST_ROWS),
    )
