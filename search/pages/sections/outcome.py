"""The comparison: defaults and tuned configurations on the test classes, and on their way there."""

from search.pages.figure import Section
from search.pages.figures.results.dots import dots
from search.pages.figures.results.pair_matrix import pair_matrix
from search.pages.figures.results.way_down import way_down
from search.report.results.comparison import Comparison


def outcome(comparison: Comparison) -> Section:
    """The test metrics as dots with intervals, the way from the search to the test, and which pairs differ."""
    figures = (
        *(dots(comparison, metric) for metric in comparison.test_metrics),
        way_down(comparison),
        pair_matrix(comparison),
    )
    missing = []
    if not comparison.test_metrics:
        missing.append("No test values: the test classes are sealed.")
    elif not comparison.pairs:
        missing.append("No pairs: " + ("; ".join(comparison.left_out) or "there is one row alone") + ".")
    return Section(
        name="comparison",
        title="Default and tuned",
        figures=tuple(figure for figure in figures if figure),
        missing=tuple(missing),
    )
