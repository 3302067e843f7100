"""Figures: the value over one and over two hyperparameters."""

import html
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import COLOURS, FAINT, Figure, plotted, rounded, vertical
from search.report.sections.searched import DEFAULT, Axis, SearchedLoss, hover, in_state, trials_table, value_of
from search.trials import by_configuration
from spaces.space import Value, value_text

# The range of a hyperparameter, as the axis of a picture.


# The values against each hyperparameter by itself.

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


# The value over the two numeric hyperparameters that matter most.

MIN_TRIALS = 8
_GRID = 60


def contours(searched: SearchedLoss) -> Figure | None:
    """The interpolated value between the trials; None with fewer than two such hyperparameters or eight trials.

    It is linear between neighbouring trials, in the scales of the ranges, and nothing is said outside of them. Trials
    of one place count with their mean, pruned ones with the value that they had come to, which is lower than what they
    would have come to: the picture shows where values are high, not how high.
    """
    ranked = list(searched.importances.shares) if searched.importances else list(searched.axes)
    names = [name for name in ranked if name in searched.numeric][:2]
    if len(names) < 2:
        return None
    first, second = (searched.axes[name] for name in names)
    trials = [
        trial
        for trial in searched.valued
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and all(name in trial.params for name in names)
    ]
    places = defaultdict(list)
    for trial in trials:
        places[first.share(trial.params[names[0]]), second.share(trial.params[names[1]])].append(value_of(trial))
    points = np.array(list(places))
    if len(trials) < MIN_TRIALS or np.linalg.matrix_rank(points - points.mean(axis=0), tol=1e-3) < 2:
        return None
    means = np.array([np.mean(values) for values in places.values()])
    grid = np.linspace(0, 1, _GRID)
    z = _interpolated(points, means, grid)
    surface = {
        "type": "contour",
        "x": [rounded(first.value_at(share)) for share in grid],
        "y": [rounded(second.value_at(share)) for share in grid],
        "z": z,
        "colorscale": "Viridis",
        "opacity": 0.85,
        "colorbar": {"title": {"text": searched.objective}, "thickness": 12},
        "hovertemplate": f"{html.escape(names[0])} %{{x}}, {html.escape(names[1])} %{{y}}: %{{z:.4f}}<extra></extra>",
    }
    pruned, complete = in_state(trials, TrialState.PRUNED), in_state(trials, TrialState.COMPLETE)
    chosen = [trial for trial in trials if trial.number == searched.chosen]
    return Figure(
        name=f"{searched.name}-contours",
        title=f"{searched.objective} over {names[0]} and {names[1]}",
        finding=_contour_finding(searched, trials, (first, second), len(pruned)),
        picture=plotted(
            [
                surface,
                _contour_points(searched, pruned, names, "pruned", FAINT, "circle-open"),
                _contour_points(searched, complete, names, "complete", COLOURS[0], "circle"),
                _contour_points(searched, chosen, names, searched.chosen_word, COLOURS[1], "star"),
            ],
            {"xaxis": first.layout, "yaxis": second.layout},
            height=420,
        ),
        table=trials_table(searched, trials),
    )


def _interpolated(points: np.ndarray, means: np.ndarray, grid: np.ndarray) -> list[list[float | None]]:
    """The value at each place of the grid, a row a place along the second axis; None outside of the points."""
    from scipy.interpolate import griddata  # half a second

    found = griddata(points, means, tuple(np.meshgrid(grid, grid)), method="linear")
    return [[None if np.isnan(value) else rounded(float(value)) for value in row] for row in found]


def _contour_points(
    searched: SearchedLoss, trials: list[FrozenTrial], names: list[str], name: str, colour: str, mark: str
) -> dict[str, object]:
    return {
        "type": "scatter",
        "name": name,
        "mode": "markers",
        "x": [trial.params[names[0]] for trial in trials],
        "y": [trial.params[names[1]] for trial in trials],
        "marker": {
            "color": colour,
            "symbol": mark,
            "size": 12 if mark == "star" else 7,
            "line": {"color": "white", "width": 1 if "open" not in mark else 1.5},
        },
        "text": [hover(searched, trial) for trial in trials],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _contour_finding(searched: SearchedLoss, trials: list[FrozenTrial], axes: tuple[Axis, Axis], pruned: int) -> str:
    best = max(trials, key=value_of)
    places = " and ".join(f"{axis.name} {value_text(best.params[axis.name])}" for axis in axes)
    of_pruned = f", {pruned} of them pruned and drawn with what they had come to" if pruned else ""
    return (
        f"Between {len(trials)} trials{of_pruned}, the highest {searched.objective}, {value_of(best):.4f}, lies at "
        f"{places}."
    )
