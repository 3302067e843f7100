"""Figure: the best value so far and the confirmed values of every loss, by the epochs of its search."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from search.plan.stored import StoredSearch
from search.report.comparison_tables import confirmed_on
from search.report.drawing import (
    PLOT_MARKS,
    Figure,
    colours_of,
    hover_text,
    marks_of,
    named_losses,
    of_loss,
    plotted,
    rounded,
    scatter,
)
from search.report.formats import interval
from search.report.loss_results import Incumbent
from search.report.results import Summary
from search.report.rows import SeedStatistics
from search.report.statistics import over_seeds
from search.report.text_table import NOTHING, TextTable
from search.selection import confirmations
from search.stages import Stage
from search.trials import epochs_of
from trainables.errors import counted
from trainables.metrics.table import is_bounded


class _Confirmed(NamedTuple):
    """The confirmed values of the configuration of a trial, whose training ended after ``epochs`` epochs."""

    epochs: int
    trial: int
    over: SeedStatistics

    def __str__(self) -> str:
        ends = f" {interval(self.over.ci95)}" if self.over.ci95 else ""
        return f"trial {self.trial}, confirmed: {self.over.mean:.4f}{ends}, {counted(self.over.seeds, 'seed')}"


class _Curve(NamedTuple):
    """The search of a loss: its improvements, its confirmed trials, and the number of its epochs."""

    label: str
    incumbents: Sequence[Incumbent]
    confirmed: Sequence[_Confirmed]
    epochs: int


def anytime_curves(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Figure | None:
    """Plot every loss's best value so far as steps, and its confirmed means with intervals; None before a value.

    A confirmed mean is drawn where the search had trained its configuration.
    """
    by_name = {summary.name: summary for summary in summaries}
    every = [_curve(label, search, loss, by_name[search.name]) for label, search, loss in named_losses(searches)]
    curves = [curve for curve in every if curve.incumbents]
    if not curves:
        return None
    labels = [curve.label for curve in every]
    colours, marks = colours_of(labels), marks_of(labels)
    return Figure(
        name="anytime",
        title="Best value so far, and confirmed values",
        finding=_finding(curves, confirmed_on(summaries[0].split)),
        picture=plotted(
            [
                trace
                for curve in curves
                for trace in _traces(curve, colours[curve.label], PLOT_MARKS[marks[curve.label]])
            ],
            {
                "xaxis": {"title": {"text": "epochs of the search of a loss"}, "rangemode": "tozero"},
                "yaxis": {"title": {"text": escape(summaries[0].objective)}},
            },
            height=460,
        ),
        table=_table(curves),
        wide=True,
    )


def _curve(label: str, search: StoredSearch, loss: str, summary: Summary) -> _Curve:
    trials, seeds, objective = search.trials(loss), search.trials(loss, Stage.SELECT), summary.objective
    ended = sorted((record["end"], trial.number) for trial in trials for record in epochs_of(trial))
    trained = {number: epochs for epochs, (_, number) in enumerate(ended, start=1)}
    candidates = sorted({trial.user_attrs["source_trial"] for trial in seeds} & trained.keys())
    confirmed = [
        _Confirmed(trained[number], number, over_seeds(found.values, bounded=is_bounded(objective)))
        for number, found in confirmations(trials, seeds, candidates, objective).items()
        if found.values
    ]
    return _Curve(label, summary.losses[loss].anytime, confirmed, len(ended))


def _traces(curve: _Curve, colour: str, mark: str) -> Iterator[dict[str, Any]]:
    """Yield the line of the best values, and the confirmed means with their intervals, if any is confirmed."""
    label, last = escape(curve.label), curve.incumbents[-1]
    texts = [f"trial {step.trial}: {step.value:.4f}, best so far" for step in curve.incumbents]
    yield scatter(
        label,
        "lines+markers",
        [*(step.epochs for step in curve.incumbents), curve.epochs],
        [rounded(step.value) for step in (*curve.incumbents, last)],
        line={"shape": "hv", "width": 1.5, "color": colour},
        marker={"symbol": f"{mark}-open", "size": 6},
        **of_loss(curve.label),
        **hover_text(
            [f"{label}, {text}" for text in [*texts, f"{last.value:.4f}, best of {counted(curve.epochs, 'epoch')}"]]
        ),
    )
    if not curve.confirmed:
        return
    found = [(entry.over.mean, entry.over.ci95 or (entry.over.mean, entry.over.mean)) for entry in curve.confirmed]
    yield scatter(
        f"{label}, confirmed",
        "markers",
        [entry.epochs for entry in curve.confirmed],
        [rounded(mean) for mean, _ in found],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [rounded(high - mean) for mean, (_, high) in found],
            "arrayminus": [rounded(mean - low) for mean, (low, _) in found],
            "thickness": 1.5,
            "width": 4,
            "color": colour,
        },
        marker={"symbol": mark, "size": 10, "color": colour},
        showlegend=False,
        **of_loss(curve.label),
        **hover_text([f"{label}, {entry}" for entry in curve.confirmed]),
    )


def _finding(curves: Sequence[_Curve], confirmed_classes: str) -> str:
    confirmed = [(curve, entry) for curve in curves for entry in curve.confirmed]
    lines = "Lines: best value so far, which is optimistic, more so with more trials"
    if confirmed:
        best, entry = max(confirmed, key=lambda found: found[1].over.mean)
        return (
            f"{best.label} has the highest confirmed mean ({entry}). {lines}; filled marks: means with fresh seeds "
            f"{confirmed_classes}, with 95 % intervals."
        )
    best = max(curves, key=lambda curve: curve.incumbents[-1].value)
    last = best.incumbents[-1]
    return (
        f"{best.label} has the highest value so far, {last.value:.4f}, reached after {last.epochs:,} of its "
        f"{counted(best.epochs, 'epoch')}. {lines}."
    )


def _table(curves: Sequence[_Curve]) -> TextTable:
    """Return each improvement and each confirmed mean, in the order of the epochs."""
    rows: list[tuple[str, ...]] = []
    for curve in curves:
        found = [(step.epochs, step.trial, f"{step.value:.4f}", NOTHING, NOTHING) for step in curve.incumbents]
        for epochs, trial, over in curve.confirmed:
            ends = interval(over.ci95) if over.ci95 else NOTHING
            found.append((epochs, trial, NOTHING, f"{over.mean:.4f}", ends))
        rows += [(curve.label, *map(str, cells)) for cells in sorted(found)]
    return TextTable(
        title="",
        header=("loss", "epochs", "trial", "best so far", "confirmed", "95 % interval"),
        rows=tuple(rows),
        labels=1,
    )
