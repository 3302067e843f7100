"""Where time and epochs went."""

from collections.abc import Sequence

from search.pages.figure import Section
from search.pages.figures.effort.best_by_cost import best_by_cost
from search.pages.figures.effort.epochs_by_outcome import epochs_by_outcome
from search.pages.figures.effort.timeline import timeline
from search.pages.figures.effort.value_by_used import value_by_used
from search.plan.stored import StoredSearch
from search.report.results.summary import Summary
from search.report.tables.text_table import NOTHING, TextTable


def effort(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Section:
    """When each slot trained what, the epochs by how their trials ended, the best value by what it had cost, and
    the values of single trials by what their losses used.
    """
    figures = (
        timeline(searches),
        epochs_by_outcome(searches),
        best_by_cost(searches, summaries),
        value_by_used(searches, summaries),
    )
    return Section(
        name="effort",
        title="Where time and epochs went",
        tables=(_times(summaries),),
        figures=tuple(figure for figure in figures if figure),
        missing=() if any(figures) else ("No epoch was trained yet.",),
    )


def _times(summaries: Sequence[Summary]) -> TextTable:
    return TextTable(
        title="Seconds",
        header=("search", "in all", "before a first epoch", "searching", "slots", "trained in each"),
        rows=tuple(
            (
                summary.name,
                f"{time.wall_s:,.0f}",
                f"{time.startup_s:,.0f}",
                f"{time.search_wall_s:,.0f}",
                str(time.slots),
                f"{time.trial_work_s / time.slots:,.0f}" if time.slots else NOTHING,
            )
            for summary in summaries
            for time in (summary.time,)
        ),
        labels=1,
        notes=(),
    )
