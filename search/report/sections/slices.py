"""Figures: values over one and over two hyperparameters."""

import html
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import COLOURS, FAINT, Figure, hover_text, plotted, rounded, scatter, vertical
from search.report.sections.searched import DEFAULT, Axis, SearchedLoss, hover, in_state, trials_table, value_of
from search.trials import by_params
from spaces.space import Value, value_text
from trainables.mistakes import counted

# Values against each hyperparameter.

COLUMNS = 3
_ROW = 230
"""Height of a row in pixels."""


def slices(searched: SearchedLoss) -> Figure | None:
    """Plot the values against each hyperparameter; None without a value or a varying hyperparameter.

    A line joins trials of one configuration; its length is noise. Dotted lines mark the ends of the range.
    """
    if not searched.axes or not searched.valued:
        return None
    traces: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    columns = min(COLUMNS, len(searched.axes))
    for place, axis in enumerate(searched.axes.values()):
        suffix = _suffix(place)
        shapes += [vertical(end, xref=f"x{suffix}", yref=f"y{suffix} domain") for end in axis.ends]
        traces += _traces(searched, axis, suffix)
    return Figure(
        name=f"{searched.name}-slices",
        title="Value by hyperparameter",
        finding=_finding(searched),
        picture=plotted(
            _with_legend(traces),
            {
                **_grid(searched, columns),
                "shapes": shapes,
                "legend": {"orientation": "h", "y": 1.0, "yanchor": "bottom"},
                "margin": {"l": 56, "r": 12, "t": 64, "b": 4},  # the icons are above the legend
            },
            height=68 + _ROW * -(-len(searched.axes) // columns),
            phone=_grid(searched, 1),
            phone_height=100 + 190 * len(searched.axes),
        ),
        table=trials_table(searched, searched.valued),
        wide=True,
    )


def _suffix(place: int) -> str:
    """Return the end of Plotly's names of the axes at a place."""
    return "" if place == 0 else str(place + 1)


def _grid(searched: SearchedLoss, columns: int) -> dict[str, Any]:
    """Return the axes of all hyperparameters, in rows of ``columns``."""
    layout: dict[str, Any] = {}
    height = 1 / -(-len(searched.axes) // columns)
    for place, axis in enumerate(searched.axes.values()):
        suffix = _suffix(place)
        row, column = divmod(place, columns)
        layout[f"xaxis{suffix}"] = {
            **axis.layout,
            "domain": [column / columns, (column + 0.9) / columns],
            "anchor": f"y{suffix}",
        }
        layout[f"yaxis{suffix}"] = {
            "domain": [1 - (row + 0.72) * height, 1 - row * height],
            "anchor": f"x{suffix}",
            **({} if place == 0 else {"matches": "y"}),
            **({"title": {"text": searched.objective}} if column == 0 else {"showticklabels": False}),
        }
    return layout


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
    return scatter(
        name,
        "markers",
        [axis.place(trial.params[axis.name]) for trial in trials],
        [rounded(value_of(trial)) for trial in trials],
        legendgroup=name,
        marker={"color": colour, "symbol": mark, "size": size},
        # Full hover texts in every picture would dominate the size of the page.
        customdata=[trial.number for trial in trials],
        hovertemplate="trial %{customdata}: %{y:.4f} at %{x}<extra></extra>",
    )


def _joined(axis: Axis, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """Return a line through the complete trials of each configuration with more than one."""
    x: list[Any] = []
    y: list[float | None] = []
    for group in by_params(in_state(trials, TrialState.COMPLETE)):
        if len(group) > 1:
            x += [axis.place(trial.params[axis.name]) for trial in group] + [None]
            y += [*(rounded(value_of(trial)) for trial in group), None]
    name = "same configuration"
    return scatter(name, "lines", x, y, legendgroup=name, line={"color": COLOURS[0], "width": 1}, hoverinfo="skip")


def _with_legend(traces: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the traces with each name once in the legend."""
    names = [trace["name"] for trace in traces]
    return [{**trace, "showlegend": names.index(trace["name"]) == place} for place, trace in enumerate(traces)]


def _finding(searched: SearchedLoss) -> str:
    """Return the positions of the chosen values in their ranges."""
    params = searched.chosen_params
    positions = [_position(axis, params[name]) for name, axis in searched.axes.items() if name in params]
    if not positions:
        return f"{searched.objective} of {counted(len(searched.valued), 'trial')} against {', '.join(searched.axes)}."
    which = "Chosen configuration" if searched.summary.chosen else "Best configuration so far"
    return f"{which}: {'; '.join(positions)}."


def _position(axis: Axis, value: Value) -> str:
    if axis.range is None:
        return f"{axis.name} {value_text(value)} of {axis.text}"
    return f"{axis.name} {value_text(value)}, at {axis.share(value):.0%} of its range {axis.text}"


# Values over the two most important numeric hyperparameters.

MIN_COMPLETE = 15
"""Fewer complete trials are drawn as points, without values between them."""
MIN_POINTS = 3
_GRID = 60


def contours(searched: SearchedLoss) -> Figure | None:
    """Plot the values over two hyperparameters; None with fewer than two numeric ones or three complete trials.

    From :data:`MIN_COMPLETE` complete trials on, values are interpolated between them, linearly on the scales of the
    ranges and inside their convex hull; trials at one place count with their mean. Pruned trials have no final value,
    so their points have no colour.
    """
    ranked = list(searched.importances.shares) if searched.importances else list(searched.axes)
    names = [name for name in ranked if name in searched.numeric][:2]
    if len(names) < 2:
        return None
    first, second = (searched.axes[name] for name in names)
    having = [trial for trial in searched.valued if all(name in trial.params for name in names)]
    pruned, complete = in_state(having, TrialState.PRUNED), in_state(having, TrialState.COMPLETE)
    if len(complete) < MIN_POINTS:
        return None
    values = [rounded(value_of(trial)) for trial in complete]
    scale = {
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": html.escape(searched.objective)}, "thickness": 12},
    }
    surface = _surface((first, second), complete)
    chosen = [trial for trial in complete if trial.number == searched.chosen]
    of_values = {"color": COLOURS[0]} if surface else {"color": values, **scale}
    return Figure(
        name=f"{searched.name}-contours",
        title=f"{searched.objective} over {names[0]} and {names[1]}",
        finding=_contour_finding(searched, complete, (first, second), len(pruned)),
        picture=plotted(
            [
                *([{**surface, **scale}] if surface else []),
                _contour_points(searched, pruned, names, "pruned", {"color": FAINT, "symbol": "circle-open"}),
                _contour_points(searched, complete, names, "complete", {**of_values, "size": 7 if surface else 11}),
                _contour_points(
                    searched,
                    chosen,
                    names,
                    searched.chosen_word,
                    {"color": COLOURS[1], "symbol": "star" if surface else "star-open", "size": 12 if surface else 18},
                ),
            ],
            {"xaxis": first.layout, "yaxis": second.layout},
            height=420,
        ),
        table=trials_table(searched, complete),
    )


def _surface(axes: tuple[Axis, Axis], complete: Sequence[FrozenTrial]) -> dict[str, Any] | None:
    """Return a contour trace of the values; None with too few trials, or with all on one line."""
    first, second = axes
    places = defaultdict(list)
    for trial in complete:
        places[first.share(trial.params[first.name]), second.share(trial.params[second.name])].append(value_of(trial))
    points = np.array(list(places))
    if len(complete) < MIN_COMPLETE or np.linalg.matrix_rank(points - points.mean(axis=0), tol=1e-3) < 2:
        return None
    means = np.array([np.mean(values) for values in places.values()])
    grid = np.linspace(0, 1, _GRID)
    return {
        "type": "contour",
        "x": [rounded(first.value_at(share)) for share in grid],
        "y": [rounded(second.value_at(share)) for share in grid],
        "z": _interpolated(points, means, grid),
        "opacity": 0.85,
        "hovertemplate": (
            f"{html.escape(first.name)} %{{x}}, {html.escape(second.name)} %{{y}}: %{{z:.4f}}<extra></extra>"
        ),
    }


def _interpolated(points: np.ndarray, means: np.ndarray, grid: np.ndarray) -> list[list[float | None]]:
    """Return values on the grid, a row for each place on the second axis; None outside the convex hull."""
    from scipy.interpolate import griddata  # half a second

    found = griddata(points, means, tuple(np.meshgrid(grid, grid)), method="linear")
    return [[None if np.isnan(value) else rounded(float(value)) for value in row] for row in found]


def _contour_points(
    searched: SearchedLoss, trials: list[FrozenTrial], names: list[str], name: str, marker: dict[str, Any]
) -> dict[str, object]:
    return scatter(
        name,
        "markers",
        [trial.params[names[0]] for trial in trials],
        [trial.params[names[1]] for trial in trials],
        marker={"size": 7, "line": {"color": "white", "width": 1}, **marker},
        **hover_text([hover(searched, trial) for trial in trials]),
    )


def _contour_finding(searched: SearchedLoss, complete: list[FrozenTrial], axes: tuple[Axis, Axis], pruned: int) -> str:
    best = max(complete, key=value_of)
    places = " and ".join(f"{axis.name} {value_text(best.params[axis.name])}" for axis in axes)
    of_pruned = f"; {counted(pruned, 'pruned trial')} without a final value" if pruned else ""
    return (
        f"The highest {searched.objective} of {counted(len(complete), 'complete trial')} is {value_of(best):.4f}, at "
        f"{places}{of_pruned}."
    )
