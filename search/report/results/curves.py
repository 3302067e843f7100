"""Anytime curves beside each other, at a few points."""

from search.report.results.result import Result


class CurvePoint(Result):
    """The best ``value`` after ``epochs`` epochs, None before the first value.

    ``confirmed`` is the mean of what the best configurations so far were confirmed with, None unless all were.
    """

    epochs: int
    value: float | None
    confirmed: float | None


class ComparedCurve(Result):
    """The curve of ``loss``.

    It is compared with the first of several curves, whose label is ``against``; the first curve has None there.
    ``cost_ratio`` is the number of epochs to that curve's best value, as a multiple of what that curve needs; None
    where this curve does not reach the value, and where the difference may be chance.
    """

    loss: str
    points: tuple[CurvePoint, ...]
    against: str | None
    cost_ratio: float | None


class SearchCurve(ComparedCurve):
    """The curve of a loss in ``search``; None is the mean of all searches that have the loss."""

    search: str | None
