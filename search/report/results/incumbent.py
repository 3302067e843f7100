"""An improvement of a search."""

from search.report.results.result import Result


class Incumbent(Result):
    """After ``epochs`` epochs of all trials, ``trial`` (its number) was the first to reach ``value``.

    ``confirmed`` is the mean that the trial's configuration was confirmed with, None where it was not confirmed.
    """

    epochs: int
    value: float
    trial: int
    confirmed: float | None
