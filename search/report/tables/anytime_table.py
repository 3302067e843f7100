"""Anytime curves as a table."""

from collections.abc import Callable, Sequence

from search.report.anytime import SHARES
from search.report.results.curves import ComparedCurve, CurvePoint
from search.report.tables.text_table import NOTHING, TextTable


def anytime_table(
    objective: str, curves: Sequence[tuple[str, ComparedCurve]], number: Callable[[float], str]
) -> TextTable:
    """Curves beside each other, each with its name and its values as ``number`` writes them."""
    notes = ["below a value: the mean that its configuration was confirmed with, where it was"] if curves else []
    for name, curve in curves:
        if curve.against is not None:
            ratio = curve.cost_ratio
            reached = "does not reach" if ratio is None else f"takes {ratio:.2f} × the epochs to reach"
            notes.append(f"{name} {reached} the best value of {curve.against}/{curve.loss}")
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
