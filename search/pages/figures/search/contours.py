"""The value over the two numeric hyperparameters that matter most."""

import html
from collections import defaultdict

import numpy as np
from optuna.trial import FrozenTrial, TrialState

from search.pages.figure import Figure
from search.pages.figures.search.axis import Axis
from search.pages.figures.search.searched import SearchedLoss, in_state, value_of
from search.pages.figures.search.trial_text import hover, trials_table
from search.pages.ink import COLOURS, FAINT
from search.pages.plotted import plotted, rounded
from spaces.value import value_text

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
        finding=_finding(searched, trials, (first, second), len(pruned)),
        picture=plotted(
            [
                surface,
                _points(searched, pruned, names, "pruned", FAINT, "circle-open"),
                _points(searched, complete, names, "complete", COLOURS[0], "circle"),
                _points(searched, chosen, names, searched.chosen_word, COLOURS[1], "star"),
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


def _points(
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


def _finding(searched: SearchedLoss, trials: list[FrozenTrial], axes: tuple[Axis, Axis], pruned: int) -> str:
    best = max(trials, key=value_of)
    places = " and ".join(f"{axis.name} {value_text(best.params[axis.name])}" for axis in axes)
    of_pruned = f", {pruned} of them pruned and drawn with what they had come to" if pruned else ""
    return (
        f"Between {len(trials)} trials{of_pruned}, the highest {searched.objective}, {value_of(best):.4f}, lies at "
        f"{places}."
    )
