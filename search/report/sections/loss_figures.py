"""Figures on the search of one loss: learning curves, importances, values by hyperparameter, and the Pareto front."""

import textwrap
from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.report.drawing import (
    BAD,
    COLOURS,
    FAINT,
    INK,
    LINE,
    Figure,
    drawn,
    hover_text,
    label_rows,
    plotted,
    rounded,
    scatter,
)
from search.report.sections.searched import (
    DEFAULT,
    LOOKS,
    SearchedLoss,
    choices,
    in_state,
    last_step,
    param_text,
    range_text,
    value_of,
)
from search.report.text_table import NOTHING, TextTable
from search.trials import ByFold, epochs_of, value_in
from spaces.space import Float, value_text
from trainables.errors import counted

MOST_ROWS = 200
"""Rows of a table of trials."""


def learning_curves(searched: SearchedLoss) -> Figure | None:
    """Plot the objective of each trial after each epoch; None before any epoch.

    The curves are measured values, not running maxima: a trial's value is the maximum of its curve. In a
    cross-validation there is one point per fold, the mean of the folds so far.
    """
    if not searched.valued:
        return None
    traces = [_curves(searched, of_state, state) for state in LOOKS if (of_state := in_state(searched.valued, state))]
    special = {DEFAULT: ("default", COLOURS[1], "dash"), searched.chosen: (searched.chosen_word, COLOURS[2], "solid")}
    for trial in searched.valued:
        if trial.number in special:
            name, colour, dash = special[trial.number]
            look = {"color": colour, "width": 3, "dash": dash}
            traces.append(scatter(name, "lines", *_curve(searched, trial), line=look, hoverinfo="skip"))
    rungs, unit = searched.rungs, searched.unit
    steps = (*rungs, searched.steps)
    reached = [
        f"{sum(step in trial.intermediate_values for trial in searched.valued)} reached {unit} {step}" for step in steps
    ]
    line = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": {"color": FAINT, "width": 1, "dash": "dot"}}
    dotted = " (dotted: rungs, where trials are compared)" if rungs else ""
    best = searched.valued[0]
    return Figure(
        name=f"{searched.name}-learning-curves",
        title="Learning curves",
        finding=f"Of {counted(len(searched.valued), 'trial')}, {', '.join(reached)}{dotted}; the best, "
        f"{_title(searched, best)}, reached {value_of(best):.4f}.",
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": unit}, "dtick": 1 if searched.steps <= 20 else None},
                "yaxis": {"title": {"text": searched.objective}},
                "shapes": [{**line, "x0": rung, "x1": rung} for rung in rungs],
            },
        ),
        table=TextTable(
            title="",
            header=("trial", *(f"{unit} {step}" for step in steps), f"last {unit}"),
            rows=tuple(
                (
                    _title(searched, trial),
                    *(f"{found[step]:.4f}" if step in found else NOTHING for step in steps),
                    str(last_step(trial)),
                )
                for trial in searched.valued[:MOST_ROWS]
                for found in (trial.intermediate_values,)
            ),
            labels=1,
            notes=(
                "means of the folds so far" if unit == ByFold.unit else "each value is the highest so far",
                *_left_out(len(searched.valued) - MOST_ROWS),
            ),
        ),
        wide=True,
    )


def _curve(searched: SearchedLoss, trial: FrozenTrial) -> tuple[list[int], list[float]]:
    """Return the steps of a trial and the value measured after each."""
    if searched.unit == ByFold.unit:
        measured = sorted(trial.intermediate_values.items())
    else:
        measured = [(record["epoch"], value_in(record, searched.objective)) for record in epochs_of(trial)]
    return [step for step, _ in measured], [rounded(value) for _, value in measured]


def _curves(searched: SearchedLoss, trials: Sequence[FrozenTrial], state: TrialState) -> dict[str, Any]:
    """Return the curves of ``trials`` as one line with gaps."""
    name, colour, mark = LOOKS[state]
    x: list[int | None] = []
    y: list[float | None] = []
    numbers: list[int | None] = []
    for trial in trials:
        steps, values = _curve(searched, trial)
        x += [*steps, None]
        y += [*values, None]
        numbers += [*[trial.number] * len(steps), None]
    return scatter(
        name,
        "lines+markers",
        x,
        y,
        customdata=numbers,
        line={"color": colour, "width": 1},
        marker={"symbol": mark, "size": 4},
        opacity=0.6,
        hovertemplate=f"trial %{{customdata}}, {searched.unit} %{{x}}: %{{y:.4f}}<extra></extra>",
    )


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
    compared = ", ".join(f"{count} after {searched.unit} {rung}" for rung, count in found.rungs.items())
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


_COLUMNS = 2
_MARGIN = 0.06
"""Share of a range that is shown beyond each of its ends."""


def slices(searched: SearchedLoss) -> Figure | None:
    """Draw the values against each hyperparameter; None without a value or a varying hyperparameter."""
    if not searched.varying or not searched.valued:
        return None
    name, trials = f"{searched.name}-slices", searched.valued
    chosen = [trial for trial in trials if trial.number == searched.chosen]
    series: list[tuple[str, list[FrozenTrial], dict[str, Any]]] = [
        ("pruned", in_state(trials, TrialState.PRUNED), {"marker": "o", "mfc": "none", "color": FAINT, "ms": 4}),
        ("complete", in_state(trials, TrialState.COMPLETE), {"marker": "o", "color": COLOURS[0], "ms": 4}),
        ("default", [t for t in trials if t.number == DEFAULT], {"marker": "D", "color": COLOURS[1], "ms": 7}),
        (searched.chosen_word, chosen, {"marker": "*", "color": COLOURS[2], "ms": 11}),
    ]
    rows = -(-len(searched.varying) // _COLUMNS)
    with drawn(name, 40 + 150 * rows, grid=(rows, _COLUMNS)) as canvas:
        for axes in canvas.grid[len(searched.varying) :]:
            axes.set_visible(False)
        for axes, (parameter, entry) in zip(canvas.grid, searched.varying.items()):
            kinds = choices(entry)
            axes.set_xticks(range(len(kinds)), list(map(value_text, kinds)))
            if isinstance(entry, Float):
                axes.set_xscale("log" if entry.log else "linear")
                ticks = [entry.low, entry.value_at(0.5), entry.high]
                axes.set_xticks(ticks, [value_text(float(tick)) for tick in ticks])
                axes.minorticks_off()
                axes.set_xlim(entry.value_at(-_MARGIN), entry.value_at(1 + _MARGIN))
            axes.set_xlabel(parameter, color=FAINT)
            axes.grid(color=LINE)
            for label, of_series, look in series:
                having = [trial for trial in of_series if parameter in trial.params]
                values = [trial.params[parameter] for trial in having]
                places = [kinds.index(value) if kinds else value for value in values]
                if of_series:
                    axes.plot(places, [value_of(trial) for trial in having], ls="", label=label, **look)
        for axes in canvas.grid[::_COLUMNS]:
            axes.set_ylabel(searched.objective)
        canvas.axes.figure.legend(*canvas.axes.get_legend_handles_labels(), loc="outside lower left", ncols=len(series))
    return Figure(
        name=name,
        title="Value by hyperparameter",
        finding=_positions(searched),
        picture=canvas.drawing,
        table=_trials(searched),
    )


def _positions(searched: SearchedLoss) -> str:
    """Return the positions of the chosen values in their ranges."""
    found = []
    for name, entry in searched.varying.items():
        if (value := searched.chosen_params.get(name)) is None:
            continue
        at = f", at {entry.position(value):.0%} of its range" if isinstance(entry, Float) else " of"
        found.append(f"{name} {value_text(value)}{at} {range_text(entry)}")
    if not found:
        return (
            f"{searched.objective} of {counted(len(searched.valued), 'trial')} against {', '.join(searched.varying)}."
        )
    return f"{'Chosen configuration' if searched.summary.chosen else 'Best configuration so far'}: {'; '.join(found)}."


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
            **hover_text([_title(searched, complete[place]) for place in places]),
        )
        for name, places, colour, mark in (
            ("on the front", best, COLOURS[0], "circle"),
            ("behind it", behind, FAINT, "circle-open"),
            ("beyond a constraint", unmet, BAD, "x"),
        )
        if places
    ]
    parts = [counted(len(complete), "complete trial")]
    if goal.constraints:
        parts.append(f"{len(unmet)} {'does' if len(unmet) == 1 else 'do'} not meet the constraints")
    if len(goal.objectives) > 1:
        parts.append(f"{len(best)} {'is' if len(best) == 1 else 'are'} on the Pareto front")
    return Figure(
        name=f"{searched.name}-front",
        title="Objectives and constraints",
        finding=f"{'; '.join(parts)}. Rule of the choice: {goal.rule}.",
        picture=plotted(traces, {"xaxis": {"title": {"text": across}}, "yaxis": {"title": {"text": down}}}),
        table=TextTable(
            title="",
            header=("trial", *goal.metrics),
            rows=tuple(
                (_title(searched, complete[place]), *(f"{measured[place][metric]:.4g}" for metric in goal.metrics))
                for place in best[:MOST_ROWS]
            ),
            labels=1,
            notes=_left_out(len(best) - MOST_ROWS),
        ),
    )


# Trials as text.


def _title(searched: SearchedLoss, trial: FrozenTrial) -> str:
    """Return a trial's number and role, such as "trial 3 (chosen)"."""
    roles = {DEFAULT: "default", searched.chosen: searched.chosen_word}
    role = roles.get(trial.number)
    return f"trial {trial.number} ({role})" if role else f"trial {trial.number}"


def _trials(searched: SearchedLoss) -> TextTable:
    """Return a table of the best trials with their values, hyperparameters and outcomes."""
    names = list(searched.varying)
    return TextTable(
        title="",
        header=("trial", searched.objective, f"{searched.unit}s", *names, "outcome"),
        rows=tuple(
            (
                _title(searched, trial),
                f"{value_of(trial):.4f}",
                str(last_step(trial)),
                *(param_text(trial.params, name) for name in names),
                textwrap.shorten(str(trial.user_attrs.get("outcome", "still running")), 120, placeholder=" …"),
            )
            for trial in searched.valued[:MOST_ROWS]
        ),
        labels=1,
        notes=_left_out(len(searched.valued) - MOST_ROWS),
    )


def _left_out(count: int) -> tuple[str, ...]:
    """Return the note below a table that lacks its last ``count`` trials; empty where it has all."""
    return (f"{counted(count, 'more trial')} not shown; `holdout trials` lists all",) if count > 0 else ()


FIGURES = (front, learning_curves, importances, slices)
