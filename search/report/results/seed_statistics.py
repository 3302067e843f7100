"""A metric over training seeds."""

from search.report.results.result import Result


class SeedStatistics(Result):
    """A metric over ``seeds`` training seeds, in the metric's own unit (0 to 1 for all but distances).

    ``values`` has one number a trained model: where folds are trained, a seed has several. ``mean`` is their mean and
    ``std`` their sample deviation, None with one value.
    """

    mean: float
    std: float | None
    seeds: int
    values: tuple[float, ...]


class SeedInterval(SeedStatistics):
    """The same with ``ci95``, the ends of the mean's 95 % interval; None with one seed."""

    ci95: tuple[float, float] | None
