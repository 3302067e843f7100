"""What the noise stage came to."""

from collections.abc import Mapping

from search.report.results.result import Result
from spaces.value import Value


class Detectable(Result):
    """The smallest ``difference`` of two means over ``seeds`` trainings each that a t-test finds; None with one seed.

    The test is two-sided at 5 %, and finds the difference with probability 80 %.
    """

    seeds: int
    difference: float | None


class NoiseSummary(Result):
    """How much the objective of one configuration (``loss``, ``params``) moves when it is trained again.

    ``values`` are those of several seeds on the search's own class split, with their ``mean`` and sample deviation
    ``std``. ``split_values`` are those of several class splits trained with the first seed, with ``split_std``.
    A deviation is None with one value. ``detectable`` maps a key of the search file to what so many seeds can show.
    ``covers`` says in words what all of this covers.
    """

    loss: str
    params: Mapping[str, Value]
    mean: float
    values: tuple[float, ...]
    std: float | None
    split_values: tuple[float, ...]
    split_std: float | None
    detectable: Mapping[str, Detectable]
    covers: str
