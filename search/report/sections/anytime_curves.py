"""Figure: the best value so far and the confirmed values of every loss, by epochs and by training hours."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate
from typing import Any

from search.plan.stored import StoredSearch
from search.report.drawing import (
    LEGEND_BELOW,
    PLOT_MARKS,
    Figure,
    buttons,
    colours_of,
    hover_text,
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
from trainables.metrics.table import is_bounded
from trainables.mistakes import counted


@dataclass(frozen=True, kw_only=True)
class _Confirmed:
    """The confirmed values of the configuration of a trial, whose training ended after ``epochs`` epochs."""

    trial: int
    epochs: int
    over: SeedStatistics


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """The search of a loss: its improvements, its confirmed trials, and its training hours after each epoch."""

    label: str
    incumbents: Sequence[Incumbent]
    confirmed: Sequence[_Confirmed]
    hours: Sequence[float]


def anytime_curves(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Figure | None:
    """Plot every loss's best value so far as steps, and its confirmed means with intervals; None before a value.

    A confirmed mean is drawn where the search had trained its configuration. The axis has the epochs of the loss's
    search or, on a button, its training hours.
    """
    by_name = {summary.name: summary for summary in summaries}
    labels = [label for label, _, _ in named_losses(searches)]
    curves = [
        curve
        for label, search, loss in named_losses(searches)
        if (curve := _curve(label, search, loss, by_name[search.name])).incumbents
    ]
    if not curves:
        return None
    colours, objective = colours_of(labels), summaries[0].objective
    traces, by_hours = [], []
    for curve in curves:
        look = {"color": colours[curve.label]}, PLOT_MARKS[labels.index(curve.label) % len(PLOT_MARKS)]
        for trace in (_best(curve, *look), *_confirmed(curve, *look)):
            traces.append(trace)
            by_hours.append([round(curve.hours[epochs - 1], 4) for epochs in trace["x"]])
    by_epochs = [trace["x"] for trace in traces]
    titles = ("epochs of the search of a loss", "training hours of a loss, summed over slots")

    def shown(text: str, xs: Sequence[Sequence[float]], title: str) -> tuple[str, str, list[dict[str, Any]]]:
        return text, "update", [{"x": xs}, {"xaxis.title.text": title}]

    return Figure(
        name="anytime",
        title="Best value so far, and confirmed values",
        finding=_finding(curves),
        picture=plotted(
            traces,
            {
                "xaxis": {"title": {"text": titles[0]}, "rangemode": "tozero"},
                "yaxis": {"title": {"text": escape(objective)}},
                "legend": LEGEND_BELOW,
                "updatemenus": buttons(shown("epochs", by_epochs, titles[0]), shown("hours", by_hours, titles[1])),
            },
            height=460,
        ),
        table=_table(curves),
        wide=True,
    )


def _curve(label: str, search: StoredSearch, loss: str, summary: Summary) -> _Curve:
    trials, objective = search.trials(loss), summary.objective
    ended = sorted(
        (record["end"], trial.number, record["end"] - record["start"])
        for trial in trials
        for record in epochs_of(trial)
    )
    trained = {number: epochs for epochs, (_, number, _) in enumerate(ended, start=1)}
    seeds = search.trials(loss, Stage.SELECT)
    candidates = sorted({trial.user_attrs["source_trial"] for trial in seeds} & trained.keys())
    return _Curve(
        label=label,
        incumbents=summary.losses[loss].anytime,
        confirmed=[
            _Confirmed(
                trial=number,
                epochs=trained[number],
                over=over_seeds(found.values, bounded=is_bounded(objective)),
            )
            for number, found in confirmations(trials, seeds, candidates, objective).items()
            if found.values
        ],
        hours=list(accumulate(seconds / 3600 for _, _, seconds in ended)),
    )


def _best(curve: _Curve, line: dict[str, str], mark: str) -> dict[str, Any]:
    values = [rounded(step.value) for step in curve.incumbents]
    return scatter(
        escape(curve.label),
        "lines+markers",
        [*(step.epochs for step in curve.incumbents), len(curve.hours)],
        [*values, values[-1]],
        line={"shape": "hv", "width": 1.5, **line},
        marker={"symbol": f"{mark}-open", "size": 6},
        **of_loss(curve.label),
        **hover_text(
            [f"{escape(curve.label)}, trial {step.trial}: {step.value:.4f}, best so far" for step in curve.incumbents]
            + [f"{escape(curve.label)}: {values[-1]:.4f}, best of {counted(len(curve.hours), 'epoch')}"]
        ),
    )


def _confirmed(curve: _Curve, line: dict[str, str], mark: str) -> Iterator[dict[str, Any]]:
    """Yield the trace of the confirmed means with their intervals, if any is confirmed."""
    if not curve.confirmed:
        return
    found = [entry.over for entry in curve.confirmed]
    ends = [entry.ci95 or (entry.mean, entry.mean) for entry in found]
    yield scatter(
        f"{escape(curve.label)}, confirmed",
        "markers",
        [entry.epochs for entry in curve.confirmed],
        [rounded(entry.mean) for entry in found],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [rounded(high - entry.mean) for entry, (_, high) in zip(found, ends, strict=True)],
            "arrayminus": [rounded(entry.mean - low) for entry, (low, _) in zip(found, ends, strict=True)],
            "thickness": 1.5,
            "width": 4,
            **line,
        },
        marker={"symbol": mark, "size": 10, **line},
        showlegend=False,
        **of_loss(curve.label),
        **hover_text([f"{escape(curve.label)}, {_told(entry)}" for entry in curve.confirmed]),
    )


def _told(entry: _Confirmed) -> str:
    ci95 = f" {interval(entry.over.ci95)}" if entry.over.ci95 else ""
    return f"trial {entry.trial}, confirmed: {entry.over.mean:.4f}{ci95}, {counted(entry.over.seeds, 'seed')}"


def _finding(curves: Sequence[_Curve]) -> str:
    confirmed = [(curve, entry) for curve in curves for entry in curve.confirmed]
    lines = "Lines: best value so far, which is optimistic, more so with more trials"
    if not confirmed:
        best = max(curves, key=lambda curve: curve.incumbents[-1].value)
        last = best.incumbents[-1]
        return (
            f"{best.label} has the highest value so far, {last.value:.4f}, reached after {last.epochs:,} of its "
            f"{counted(len(best.hours), 'epoch')}. {lines}."
        )
    best, entry = max(confirmed, key=lambda found: found[1].over.mean)
    return (
        f"{best.label} has the highest confirmed mean ({_told(entry)}). {lines}; filled marks: means with fresh seeds, "
        "with 95 % intervals."
    )


def _table(curves: Sequence[_Curve]) -> TextTable:
    """Return each improvement and each confirmed mean, in the order of the epochs."""
    rows = [
        (curve, epochs, cells)
        for curve in curves
        for epochs, cells in sorted(
            [
                *((step.epochs, (str(step.trial), f"{step.value:.4f}", NOTHING, NOTHING)) for step in curve.incumbents),
                *(
                    (
                        entry.epochs,
                        (
                            str(entry.trial),
                            NOTHING,
                            f"{entry.over.mean:.4f}",
                            interval(entry.over.ci95) if entry.over.ci95 else NOTHING,
                        ),
                    )
                    for entry in curve.confirmed
                ),
            ]
        )
    ]
    return TextTable(
        title="",
        header=("loss", "epochs", "hours", "trial", "best so far", "confirmed", "95 % interval"),
        rows=tuple(
            (curve.label, str(epochs), f"{curve.hours[epochs - 1]:.3f}", *cells) for curve, epochs, cells in rows
        ),
        labels=1,
    )
