"""Anytime curves as a table."""

from collections.abc import Callable, Sequence

from search.report.anytime import SHARES
from search.report.results.curves import ComparedCurve, CurvePoint
from search.report.statistics.anytime import MIN_SEARCHES
from search.report.tables.text_table import NOTHING, TextTable


def anytime_table(
    objective: str, curves: Sequence[tuple[str, ComparedCurve]], number: Callable[[float], str]
) -> TextTable:
    """Curves beside each other, each with its name and its values as ``number`` writes them."""
    notes = ["below a value: the mean that its configuration was confirmed with, where it was"] if curves else []
    for name, curve in curves:
        if curve.cost_ratio is not None:
            reached = f"takes {curve.cost_ratio:.2f} × the epochs to reach the best value of"
            notes.append(f"{name} {reached} {curve.against}/{curve.loss} (permutation of the searches, 5 %)")
    if any(curve.against is not None and curve.cost_ratio is None for _, curve in curves):
        notes.append(f"what differs otherwise may be chance: that takes {MIN_SEARCHES} searches a way or more to tell")
    return TextTable(
        title=f"Best {objective} so far, by the epochs spent",
        header=("loss", *(f"{share:.0%} of the epochs" for share in SHARES)),
        rows=tuple((name, *(_cell(point, number) for point in curve.points)) for name, curve in curves),
        labels=1,
        notes=tuple(notes),
    )


def _cell(point: CurvePoint, number: Callable[[float], str]) -> str:
    if point.value is None:
        return NOTHING
    text = f"{number(point.value)} after {point.epochs}"
    return text if point.confirmed is None else f"{text}\n{number(point.confirmed)} confirmed"
