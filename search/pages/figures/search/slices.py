"""The values against each hyperparameter by itself."""

from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.pages.figure import Figure
from search.pages.figures.search.axis import Axis
from search.pages.figures.search.searched import DEFAULT, SearchedLoss, in_state, value_of
from search.pages.figures.search.trial_text import trials_table
from search.pages.ink import COLOURS, FAINT
from search.pages.plotted import plotted, rounded, vertical
from search.study.configurations import by_configuration
from spaces.value import Value, value_text

COLUMNS = 3
_ROW = 230
"""Pixels."""


def slices(searched: SearchedLoss) -> Figure | None:
    """A small picture a hyperparameter, all with the same values; None without any value or any that varies.

    Trials of one configuration are joined by a line: its length is noise. Dotted lines are the ends of the range.
    """
    if not searched.axes or not searched.valued:
        return None
    traces: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    columns = min(COLUMNS, len(searched.axes))
    rows = -(-len(searched.axes) // columns)
    for place, axis in enumerate(searched.axes.values()):
        suffix = "" if place == 0 else str(place + 1)
        row, column = divmod(place, columns)
        top, height = 1 - row / rows, 1 / rows
        layout[f"xaxis{suffix}"] = {
            **axis.layout,
            "domain": [column / columns, (column + 0.9) / columns],
            "anchor": f"y{suffix}",
        }
        layout[f"yaxis{suffix}"] = {
            "domain": [top - 0.72 * height, top],
            "anchor": f"x{suffix}",
            **({} if place == 0 else {"matches": "y"}),
            **({"title": {"text": searched.objective}} if column == 0 else {"showticklabels": False}),
        }
        shapes += [vertical(end, xref=f"x{suffix}", yref=f"y{suffix} domain") for end in axis.ends]
        traces += _traces(searched, axis, suffix)
    return Figure(
        name=f"{searched.name}-slices",
        title="Value by hyperparameter",
        finding=_finding(searched),
        picture=plotted(
            _with_legend(traces),
            {
                **layout,
                "shapes": shapes,
                "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom"},
                "margin": {"l": 56, "r": 12, "t": 44, "b": 4},
            },
            height=48 + _ROW * rows,
        ),
        table=trials_table(searched, searched.valued),
        wide=True,
    )


def _traces(searched: SearchedLoss, axis: Axis, suffix: str) -> list[dict[str, Any]]:
    having = [trial for trial in searched.valued if axis.name in trial.params]
    of_chosen = [trial for trial in having if trial.number == searched.chosen]
    found = [
        _joined(axis, having),
        _points(searched, axis, in_state(having, TrialState.PRUNED), "pruned", FAINT, "circle-open", 6),
        _points(searched, axis, in_state(having, TrialState.COMPLETE), "complete", COLOURS[0], "circle", 6),
        _points(searched, axis, [t for t in having if t.number == DEFAULT], "default", COLOURS[1], "diamond", 11),
        _points(searched, axis, of_chosen, searched.chosen_word, COLOURS[2], "star", 13),
    ]
    return [{**trace, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"} for trace in found if trace["x"]]


def _points(
    searched: SearchedLoss, axis: Axis, trials: Sequence[FrozenTrial], name: str, colour: str, mark: str, size: int
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "name": name,
        "legendgroup": name,
        "mode": "markers",
        "x": [axis.place(trial.params[axis.name]) for trial in trials],
        "y": [rounded(value_of(trial)) for trial in trials],
        "marker": {"color": colour, "symbol": mark, "size": size},
        # The same words in each of the pictures would be most of a page of many trials.
        "customdata": [trial.number for trial in trials],
        "hovertemplate": "trial %{customdata}: %{y:.4f} at %{x}<extra></extra>",
    }


def _joined(axis: Axis, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """A line through the complete trials of each configuration that was tried more than once."""
    x: list[Any] = []
    y: list[float | None] = []
    for group in by_configuration(in_state(trials, TrialState.COMPLETE)):
        if len(group) > 1:
            x += [axis.place(trial.params[axis.name]) for trial in group] + [None]
            y += [*(rounded(value_of(trial)) for trial in group), None]
    return {
        "type": "scatter",
        "name": "same configuration",
        "legendgroup": "same configuration",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": COLOURS[0], "width": 1},
        "hoverinfo": "skip",
    }


def _with_legend(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each name once in the legend."""
    names = [trace["name"] for trace in traces]
    return [{**trace, "showlegend": names.index(trace["name"]) == place} for place, trace in enumerate(traces)]


def _finding(searched: SearchedLoss) -> str:
    """Where the chosen values lie in their ranges."""
    params = searched.chosen_params
    said = [text for name, axis in searched.axes.items() if name in params and (text := lies_at(axis, params[name]))]
    which = "Of the chosen configuration" if searched.summary.confirmed else "Of the best configuration so far"
    if not said:
        return f"The {searched.objective} of {len(searched.valued)} trials against {', '.join(searched.axes)}."
    return f"{which} {'; '.join(said)}."


def lies_at(axis: Axis, value: Value) -> str:
    """Where a value lies in its range, in words."""
    if axis.range is None:
        return f"{axis.name} is {value_text(value)} of {axis.text}"
    return f"{axis.name} {value_text(value)} lies at {axis.share(value):.0%} of its range {axis.text}"
