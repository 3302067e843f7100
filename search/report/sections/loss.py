"""Report section on the search of one loss, and its figures of all params: parallel coordinates and importances."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from search.plan.stored import StoredSearch
from search.report.drawing import (
    COLOURS,
    INK,
    Figure,
    Section,
    drawn,
    hover_text,
    label_rows,
    plotted,
    rounded,
    scatter,
    vertical,
)
from search.report.formats import parameters
from search.report.importances import MIN_TRIALS
from search.report.results import Summary
from search.report.rows import SeedStatistics
from search.report.sections.front import front
from search.report.sections.history import ends, history
from search.report.sections.learning_curves import learning_curves
from search.report.sections.searched import (
    DEFAULT,
    Axis,
    SearchedLoss,
    hover,
    in_state,
    is_complete,
    searched_loss,
    trials_table,
    value_of,
)
from search.report.sections.slices import contours, slices
from search.report.text_table import NOTHING, TextTable
from search.selection import Selection
from spaces.space import Value, value_text
from trainables.mistakes import counted


def loss_section(stored: StoredSearch, summary: Summary, loss: str) -> Section:
    """Return the section of ``loss``.

    Raises:
        Mistakes: the selection was changed after it was frozen.
    """
    searched = searched_loss(stored, summary, loss)
    path = stored.folder.selection
    reason = Selection.load(path).reasons.get(loss) if path.exists() else None
    if not searched.trials:
        return Section(name=searched.name, title=loss, pending=("No trial has started.",), loss=loss)
    figures = [draw(searched) for draw in FIGURES]
    without_axes = "There are no figures by hyperparameter: this loss has none that varies."
    return Section(
        name=searched.name,
        title=loss,
        results=(_table(searched),) if searched.axes else (),
        sentences=tuple(_sentences(searched, reason)),
        figures=tuple(figure for figure in figures if figure),
        remarks=(*_remarks(searched), *([] if searched.axes else [without_axes])),
        pending=tuple(_pending(searched)),
        loss=loss,
    )


def _sentences(searched: SearchedLoss, reason: str | None) -> Iterator[str]:
    entry, objective = searched.summary, searched.objective
    yield _choice(searched, reason)
    chosen, default = entry.tuned.confirmed, entry.default.confirmed
    if chosen and entry.tuned.number != DEFAULT and default:
        yield (
            f"Mean {objective} with fresh seeds: {_mean(chosen)} for the chosen configuration, {_mean(default)} for "
            "the default."
        )
    counts = entry.trials
    yield (
        f"{counted(counts.complete, 'trial')} completed, {counts.pruned} pruned and {counts.failed} failed in "
        f"{counted(entry.epochs, 'epoch')}; {searched.pruning}."
    )


def _remarks(searched: SearchedLoss) -> Iterator[str]:
    entry = searched.summary
    yield from map(_sentence, entry.incomplete_seeds)
    if entry.ended_early:
        yield _sentence(entry.ended_early)
    if entry.overtuned:
        yield _sentence(entry.overtuned)
    for finding in entry.diagnostics:
        yield _sentence(finding.sentence)
    if searched.constants:
        yield f"Fixed hyperparameters: {parameters(searched.constants)}."


def _mean(entry: SeedStatistics) -> str:
    return f"{entry.mean:.4f} ({counted(entry.seeds, 'seed')})"


def _choice(searched: SearchedLoss, reason: str | None) -> str:
    entry, objective = searched.summary, searched.objective
    if entry.chosen:
        what = "The default was chosen" if entry.chosen.number == DEFAULT else "A configuration was chosen"
        return f"{what}: {reason or f'trial {entry.chosen.number}'}."
    if entry.best:
        of_default = entry.default.search_value
        default = "" if of_default is None else f" (default: {of_default:.4f})"
        return (
            f"Nothing is chosen yet; the best trial so far is {entry.best.number} with {objective} "
            f"{entry.best.value:.4f}{default}."
        )
    return "Nothing can be chosen: no trial is complete."


def _table(searched: SearchedLoss) -> TextTable:
    entry, params = searched.summary, searched.chosen_params
    notes = ["the default is clipped to the nearest value in the search range"] if entry.default.clipped else []
    return TextTable(
        title="",
        header=("hyperparameter", "default", searched.chosen_word, "search range"),
        rows=tuple(
            (name, _cell(entry.default.params or {}, name), _cell(params, name), axis.text)
            for name, axis in searched.axes.items()
        ),
        labels=1,
        notes=tuple(notes),
    )


def _cell(params: Mapping[str, Value], name: str) -> str:
    return value_text(params[name]) if name in params else NOTHING


def _sentence(text: str) -> str:
    """Return a phrase with an initial capital and a full stop."""
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def _pending(searched: SearchedLoss) -> Iterator[str]:
    """Yield what cannot be shown yet, and why."""
    if not searched.valued:
        yield f"Learning curves: no trial has a value of {searched.objective}."
        return
    several = len(searched.axes) > 1
    if several and searched.importances is None:
        yield (
            f"Importances: they need {MIN_TRIALS} trials at the same rung, and "
            f"{counted(len(searched.valued), 'trial')} {'has' if len(searched.valued) == 1 else 'have'} a value."
        )
    if several and (complete := len(in_state(searched.trials, TrialState.COMPLETE))) <= MIN_LINES:
        yield f"The best configurations: they need more than {MIN_LINES} complete trials, and there are {complete}."


MIN_LINES = 10
"""With at most so many complete trials, the table says as much as lines."""
TOP = 30


BEST = 5


SCALE = "Viridis"


_MISSING = -0.12
"""Height at which a hyperparameter that the trial lacks is drawn, below the range."""


def parallel(searched: SearchedLoss) -> Figure | None:
    """Draw a line for each of the 30 best complete trials; None with at most ten, or fewer than two hyperparameters.

    Plotly's parallel coordinates need WebGL, which browsers limit to a few pictures per page and lack on some machines;
    these are plain lines.
    """
    complete = [trial for trial in searched.valued if is_complete(trial)]
    if len(complete) <= MIN_LINES or len(searched.axes) < 2:
        return None
    trials = complete[:TOP]
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
    layout: dict[str, Any] = {
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
    # There is room for the ends of the ranges alone, and for names that are turned.
    phone = {
        "annotations": [entry for entry in layout["annotations"] if entry["y"] in (0.0, 1.0)],
        "xaxis": {**layout["xaxis"], "tickangle": -60},
        "margin": {**layout["margin"], "t": 110},
    }
    return Figure(
        name=f"{searched.name}-parallel",
        title="The best configurations",
        finding=_finding(searched, trials, len(complete)),
        picture=plotted(traces, layout, phone=phone),
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


def _finding(searched: SearchedLoss, trials: Sequence[FrozenTrial], complete: int) -> str:
    best = trials[:BEST]
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
    return f"The {len(best)} best of {complete} complete trials have {', '.join(parts)}."


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


FIGURES = (history, front, learning_curves, ends, importances, slices, parallel, contours)
