"""Figures: the best configurations as parallel coordinates, and the importances of hyperparameters."""

import html
from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial

from search.report.drawing import (
    COLOURS,
    INK,
    Figure,
    drawn,
    hover_text,
    label_rows,
    plotted,
    rounded,
    scatter,
    vertical,
)
from search.report.sections.searched import Axis, SearchedLoss, hover, trials_table, value_of
from search.report.text_table import TextTable
from spaces.space import value_text

# Parallel coordinates.

TOP = 30
BEST = 5
SCALE = "Viridis"
_MISSING = -0.12
"""Height at which a hyperparameter that the trial lacks is drawn, below the range."""


def parallel(searched: SearchedLoss) -> Figure | None:
    """Draw a line for each of the 30 best trials; None with fewer than two trials or two varying hyperparameters.

    Complete trials come first, then those with the most steps, each by value. Plotly's parallel coordinates need WebGL,
    which browsers limit to a few pictures per page and lack on some machines; these are plain lines.
    """
    trials = searched.valued[:TOP]
    if len(trials) < 2 or len(searched.axes) < 2:
        return None
    from plotly.colors import sample_colorscale

    axes = list(searched.axes.values())
    values = [rounded(value_of(trial)) for trial in trials]
    low, high = min(values), max(values)
    shares = [(value - low) / ((high - low) or 1.0) for value in values]
    traces = [
        scatter(
            f"trial {trial.number}",
            "lines+markers",
            list(range(len(axes) + 1)),
            [*(_share(axis, trial) for axis in axes), round(share, 4)],
            line={"color": sample_colorscale(SCALE, share)[0], "width": 1.5},
            **hover_text([hover(searched, trial)] * (len(axes) + 1)),
        )
        for trial, share in reversed(list(zip(trials, shares, strict=True)))  # the best is drawn last
    ]
    names = [*(html.escape(axis.name) for axis in axes), html.escape(searched.objective)]
    layout = {
        "showlegend": False,
        "shapes": [vertical(place, yref="y") for place in range(len(names))],
        "annotations": [
            *(_tick(place, at, text) for place, axis in enumerate(axes) for at, text in _ticks(axis, trials)),
            *(_tick(len(axes), at, f"{value:.4f}") for at, value in ((0.0, low), (1.0, high))),
        ],
        "xaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "side": "top",
            "range": [-0.4, len(axes) + 0.4],
            "showgrid": False,
            "zeroline": False,
        },
        "yaxis": {"visible": False, "range": [_MISSING - 0.05, 1.05]},
        "margin": {"l": 20, "r": 20, "t": 60, "b": 20},
    }
    return Figure(
        name=f"{searched.name}-parallel",
        title="The best configurations",
        finding=_finding(searched, trials),
        picture=plotted(traces, layout),
        table=trials_table(searched, trials),
        wide=True,
    )


def _share(axis: Axis, trial: FrozenTrial) -> float:
    """Return the height of a trial on an axis: its position in the range, on a linear or log scale."""
    return round(axis.share(trial.params[axis.name]), 4) if axis.name in trial.params else _MISSING


def _ticks(axis: Axis, trials: Sequence[FrozenTrial]) -> list[tuple[float, str]]:
    missing = any(axis.name not in trial.params for trial in trials)
    return [*([(_MISSING, "none")] if missing else []), *axis.ticks]


def _tick(place: int, at: float, text: str) -> dict[str, Any]:
    return {"x": place, "y": at, "text": html.escape(text), "showarrow": False, "xanchor": "right", "xshift": -4}


def _finding(searched: SearchedLoss, trials: Sequence[FrozenTrial]) -> str:
    best = trials[: min(BEST, len(trials) - 1)]
    parts = []
    for name, axis in searched.axes.items():
        values = [trial.params[name] for trial in best if name in trial.params]
        if not values:
            continue
        if axis.range is None:
            text = " or ".join(value_text(choice) for choice in axis.choices if choice in values)
        else:
            low, high = value_text(min(values)), value_text(max(values))
            text = low if low == high else f"{low} to {high}"
        having = "" if len(values) == len(best) else f" (in {len(values)} of them)"
        parts.append(f"{name} {text}{having}")
    which = f"The {len(best)} best of {len(searched.valued)} trials have" if len(best) > 1 else "The best trial has"
    return f"{which} {', '.join(parts)}."


# Importances.


def importances(searched: SearchedLoss) -> Figure | None:
    """Draw each hyperparameter's share in placing a trial in the better half; None with too few trials.

    Trials are compared at each rung and at the end, and each rung weighs as much as the number of trials that reached
    it (:func:`search.report.importances.importances`).
    """
    found = searched.importances
    if found is None or len(found.shares) < 2:
        return None
    name, shares = f"{searched.name}-importances", found.shares
    with drawn(name, 50 + 22 * len(shares)) as canvas:
        axes = canvas.axes
        bars = axes.barh(range(len(shares)), list(shares.values()), color=COLOURS[0])
        axes.bar_label(bars, [f"{share:.0%}" for share in shares.values()], padding=3, color=INK)
        label_rows(axes, list(shares), "share in placing a trial in the better half (PED-ANOVA)")
        axes.set_xlim(0, 1.1 * max(shares.values()))
        axes.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    first, second = list(shares)[:2]
    unit = searched.unit
    compared = ", ".join(f"{count} after {unit} {rung}" for rung, count in found.rungs.items())
    return Figure(
        name=name,
        title="Importances of the hyperparameters",
        finding=f"{first} matters most with {shares[first]:.0%}, then {second} with {shares[second]:.0%}, by the "
        f"values of all trials at the same rungs ({compared}).",
        picture=canvas.drawing,
        table=TextTable(
            title="",
            header=("hyperparameter", "share"),
            rows=tuple((name, f"{share:.3f}") for name, share in shares.items()),
            labels=1,
            notes=("rough with few trials: if nothing matters, the first of four reaches 50% by chance",),
        ),
    )
