"""The best configurations as lines through all of their hyperparameters."""

import html
from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial

from search.pages.figure import Figure
from search.pages.figures.search.axis import Axis
from search.pages.figures.search.plotted import plotted, rounded
from search.pages.figures.search.searched import SearchedLoss, value_of
from search.pages.figures.search.trial_text import trials_table
from spaces.value import value_text

TOP = 30
BEST = 5
_MISSING = -0.12
"""Where a hyperparameter is drawn in a trial that has none: below the range."""


def parallel(searched: SearchedLoss) -> Figure | None:
    """A line for each of the 30 best trials; None with fewer than two trials or two hyperparameters that vary.

    The best: what is complete, then what got furthest, each by value.
    """
    trials = searched.valued[:TOP]
    if len(trials) < 2 or len(searched.axes) < 2:
        return None
    values = [rounded(value_of(trial)) for trial in trials]
    trace = {
        "type": "parcoords",
        "line": {
            "color": values,
            "colorscale": "Viridis",
            "showscale": True,
            "colorbar": {"title": {"text": searched.objective}, "thickness": 12},
        },
        "dimensions": [
            *(_dimension(axis, trials) for axis in searched.axes.values()),
            {"label": searched.objective, "values": values},
        ],
    }
    return Figure(
        name=f"{searched.name}-parallel",
        title="The best configurations",
        finding=_finding(searched, trials),
        picture=plotted([trace], {"margin": {"l": 60, "r": 30, "t": 60, "b": 30}}),
        table=trials_table(searched, trials),
        wide=True,
    )


def _dimension(axis: Axis, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """An axis over the shares of the range, so that logarithms and choices are drawn alike."""
    missing = any(axis.name not in trial.params for trial in trials)
    ticks = [*([(_MISSING, "none")] if missing else []), *axis.ticks]
    return {
        "label": html.escape(axis.name),  # the labels are markup, and the texts of ticks are none
        "values": [
            round(axis.share(trial.params[axis.name]), 4) if axis.name in trial.params else _MISSING for trial in trials
        ],
        "range": [_MISSING if missing else 0, 1],
        "tickvals": [share for share, _ in ticks],
        "ticktext": [text for _, text in ticks],
    }


def _finding(searched: SearchedLoss, trials: Sequence[FrozenTrial]) -> str:
    best = trials[: min(BEST, len(trials) - 1)]
    said = []
    for name, axis in searched.axes.items():
        values = [trial.params[name] for trial in best if name in trial.params]
        if not values:
            continue
        if axis.range is None:
            text = " or ".join(value_text(choice) for choice in axis.choices if choice in values)
        else:
            low, high = value_text(min(values)), value_text(max(values))
            text = low if low == high else f"{low} to {high}"
        having = "" if len(values) == len(best) else f" (only {len(values)} of them)"
        said.append(f"{name} {text}{having}")
    which = f"The {len(best)} best of {len(searched.valued)} trials have" if len(best) > 1 else "The best trial has"
    return f"{which} {', '.join(said)}."
