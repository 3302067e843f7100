"""The losses of several searches of one split beside each other."""

from search.report.results.curves import SearchCurve
from search.report.results.pair import Pair
from search.report.results.result import Result
from search.report.results.row import Row
from search.report.results.summary import SplitSummary, Summary


class Comparison(Result):
    """Everything that a comparison says.

    All ``searches`` have the same ``objective`` and ``split``. ``openings`` says how often the test classes were
    opened, and ``warnings`` what was trained on images of an opened test set, or chosen after opening.
    ``test_metrics`` are the metrics of the test that are shown; there are none while the test is sealed. ``left_out``
    says in sentences which rows could not be paired, and why.
    """

    objective: str
    split: SplitSummary
    openings: str
    warnings: tuple[str, ...]
    test_metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    anytime: tuple[SearchCurve, ...]
    searches: tuple[Summary, ...]
