"""What the noise stage came to."""

from collections.abc import Mapping

from search.report.results.result import Result
from spaces.value import Value


class Detectable(Result):
    """The ``difference`` that the test of a pair finds with probability 80 %, among all ``pairs``; None with one seed.

    Each of the rows has ``seeds`` seeds, and the test classes' own noise comes on top.
    """

    seeds: int
    pairs: int
    difference: float | None


class NoiseSummary(Result):
    """How much the objective of one configuration (``loss``, ``params``) moves when it is trained again.

    ``values`` are those of several seeds on the search's own class split, with their ``mean`` and sample deviation
    ``std``. ``split_values`` are those of several class splits trained with the first seed, with ``split_std``.
    A deviation is None with one value. ``detectable`` is what the final seeds can show of such a noise.
    ``covers`` says in words what all of this covers.
    """

    loss: str
    params: Mapping[str, Value]
    mean: float
    values: tuple[float, ...]
    std: float | None
    split_values: tuple[float, ...]
    split_std: float | None
    detectable: Detectable
    covers: str
