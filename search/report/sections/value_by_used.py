"""Figure: values of trials over iterations, over the pairs or triplets that their losses used, and over epochs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate, chain
from typing import Any, Final

from search.plan.stored import StoredSearch
from search.report.drawing import (
    LEGEND_BELOW,
    PLOT_MARKS,
    Figure,
    buttons,
    colours_of,
    named_losses,
    of_loss,
    plotted,
    rounded,
    scatter,
)
from search.report.results import Summary
from search.report.sections.searched import DEFAULT
from search.report.text_table import NOTHING, TextTable
from search.trials import epochs_of
from trainables.spec import EpochRecord

ITERATIONS: Final = "iterations"
EPOCHS: Final = "epochs"
ALWAYS: Final = (EPOCHS, ITERATIONS)
"""Units that every training has; losses add others."""
_NOTES = (
    "pairs and triplets: the number of terms in the loss, zero terms included; for topk_precision, the misplaced "
    "negatives, each with a misplaced positive",
    "each curve is one training with one seed",
)
_OF_FOLDS = "cross-validation: the first fold"


@dataclass(frozen=True, kw_only=True)
class _Curve:
    """A trial after each epoch: its cumulative ``totals`` by unit, and its ``values`` by metric."""

    loss: str
    number: int
    word: str
    totals: Mapping[str, Sequence[int]]
    values: Mapping[str, Sequence[float]]

    @property
    def is_best(self) -> bool:
        return self.word != "default"

    def highest(self, metric: str, unit: str, most: int) -> float:
        """Return the highest value after epochs whose total is at most ``most``; the first epoch's must be."""
        pairs = zip(self.totals[unit], self.values[metric], strict=True)
        return max(value for total, value in pairs if total <= most)


def value_by_used(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Figure | None:
    """Plot the default and the best trial of every loss after each epoch; None if no loss counts its units.

    Values are as measured, not running maxima; a menu selects the other metrics of the validation.
    """
    curves = list(_curves(searches, summaries))
    units = [unit for unit in _each(curve.totals for curve in curves) if unit not in ALWAYS]
    metrics = _metrics(curves, summaries[0].objective)
    notes = (*_NOTES, *([_OF_FOLDS] if any(summary.split.folds for summary in summaries) else []))
    if not (units and metrics):
        return None
    return Figure(
        name="value-by-used",
        title="Values during training, by pairs or triplets used",
        finding=_finding(curves, units, metrics[0]),
        picture=plotted(_traces(curves, metrics[0]), _layout(curves, units, metrics), height=500),
        table=_table(curves, units, metrics[0], notes),
        wide=True,
    )


def _curves(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Iterator[_Curve]:
    by_name = {summary.name: summary for summary in summaries}
    for label, search, loss in named_losses(searches):
        best = by_name[search.name].losses[loss].best
        words = {DEFAULT: "default"}
        if best is not None:
            words[best.number] = "default and best" if best.number == DEFAULT else "best"
        for trial in search.trials(loss):
            records = [record for record in epochs_of(trial) if record.get("fold", 1) == 1]
            if trial.number in words and records and "batches" in records[0]:  # older records have no counts
                yield _curve(label, trial.number, words[trial.number], records)


def _curve(label: str, number: int, word: str, records: Sequence[EpochRecord]) -> _Curve:
    totals = {EPOCHS: [record["epoch"] for record in records]}
    totals[ITERATIONS] = list(accumulate(record["batches"] for record in records))
    for unit in _each(record.get("used", {}) for record in records):
        totals[unit] = list(accumulate(record.get("used", {}).get(unit, 0) for record in records))
    values = {metric: [rounded(record["metrics"][metric]) for record in records] for metric in records[0]["metrics"]}
    return _Curve(loss=label, number=number, word=word, totals=totals, values=values)


def _each(names: Iterable[Iterable[str]]) -> list[str]:
    """Return every name once, in order of first appearance."""
    return list(dict.fromkeys(chain.from_iterable(names)))


def _metrics(curves: Sequence[_Curve], objective: str) -> list[str]:
    """Return the metrics that every curve has, the objective first."""
    return [
        name
        for name in _each([[objective], *(curve.values for curve in curves)])
        if all(name in curve.values for curve in curves)
    ]


def _traces(curves: Sequence[_Curve], metric: str) -> list[dict[str, Any]]:
    colours = colours_of([curve.loss for curve in curves])
    losses = list(colours)
    return [
        scatter(
            f"{escape(curve.loss)}, {curve.word}",
            "lines+markers",
            curve.totals[ITERATIONS],
            curve.values[metric],
            line={"color": colours[curve.loss], "dash": "solid" if curve.is_best else "dot"},
            marker={"symbol": PLOT_MARKS[losses.index(curve.loss) % len(PLOT_MARKS)], "size": 6},
            **of_loss(curve.loss),
            hovertemplate=f"%{{fullData.name}}, trial {curve.number}<br>%{{x:,}}: %{{y:.4f}}<extra></extra>",
        )
        for curve in curves
    ]


def _layout(curves: Sequence[_Curve], units: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    def by(unit: str) -> tuple[str, str, list[dict[str, Any]]]:
        shown = {"x": [curve.totals.get(unit, []) for curve in curves], "visible": [unit in c.totals for c in curves]}
        return unit, "update", [shown, {"xaxis.title.text": _titles(unit)}]

    def of(metric: str) -> tuple[str, str, list[dict[str, Any]]]:
        return metric, "update", [{"y": [curve.values[metric] for curve in curves]}, {"yaxis.title.text": metric}]

    menus = buttons(*map(by, (ITERATIONS, *units, EPOCHS)))
    if len(metrics) > 1:
        (menu,) = buttons(*((escape(name), method, args) for name, method, args in map(of, metrics)))
        above = {"x": 1, "xanchor": "right", "pad": {"b": 42}}  # on a phone it does not fit next to the buttons
        menus.append({**menu, "type": "dropdown", "direction": "down", **above})
    return {
        "xaxis": {"title": {"text": _titles(ITERATIONS)}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": escape(metrics[0])}},
        "legend": LEGEND_BELOW,
        "margin": {"t": 122},  # two rows of menus below the toolbar
        "updatemenus": menus,
    }


def _titles(unit: str) -> str:
    return {ITERATIONS: "iterations (batches)", EPOCHS: "epochs"}.get(unit, f"{unit} used")


def _finding(curves: Sequence[_Curve], units: Sequence[str], metric: str) -> str:
    """Compare the best trials at equal counts of each unit, and at equal iterations."""
    best = [curve for curve in curves if curve.is_best] or list(curves)
    sentences = []
    for unit in units:
        of_best, of_any = ([curve for curve in among if unit in curve.totals] for among in (best, curves))
        sentences.append(_compared(of_best or of_any, unit, metric))
    if len(best) > 1:
        sentences.append(_compared(best, ITERATIONS, metric))
    return " ".join(sentences)


def _compared(curves: Sequence[_Curve], unit: str, metric: str) -> str:
    if len(curves) == 1:
        (only,) = curves
        total, iterations = only.totals[unit][-1], only.totals[ITERATIONS][-1]
        return (
            f"{only.loss}, trial {only.number}, used {total:,} {unit} in {iterations:,} iterations "
            f"({total / iterations:,.1f} each) and reached a {metric} of {max(only.values[metric]):.4f}."
        )
    # the budget at which every loss has a value and one has finished its training
    most = max(*(curve.totals[unit][0] for curve in curves), min(curve.totals[unit][-1] for curve in curves))
    values = sorted((curve.highest(metric, unit, most), curve.loss) for curve in curves)
    (low, last), (high, first) = values[0], values[-1]
    text = f"With at most {most:,} {unit} the highest {metric} is {high:.4f} ({first}), the lowest {low:.4f} ({last})"
    if unit == ITERATIONS:
        return f"{text}."
    each = sorted((curve.totals[unit][-1] / curve.totals[ITERATIONS][-1], curve.loss) for curve in curves)
    (few, frugal), (many, lavish) = each[0], each[-1]
    return f"{text}; an iteration used {few:,.1f} ({frugal}) to {many:,.1f} ({lavish})."


def _table(curves: Sequence[_Curve], units: Sequence[str], metric: str, notes: tuple[str, ...]) -> TextTable:
    return TextTable(
        title="",
        header=("loss", "trial", *ALWAYS, *units, f"highest {metric}", "after epoch"),
        rows=tuple(
            (
                f"{curve.loss}, {curve.word}",
                str(curve.number),
                *(f"{curve.totals[unit][-1]:,}" if unit in curve.totals else NOTHING for unit in (*ALWAYS, *units)),
                f"{max(curve.values[metric]):.4f}",
                str(curve.totals[EPOCHS][curve.values[metric].index(max(curve.values[metric]))]),
            )
            for curve in curves
        ),
        labels=1,
        notes=notes,
    )
