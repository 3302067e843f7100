"""Where time and epochs went."""

from collections.abc import Sequence

from search.pages.figure import Section
from search.pages.figures.effort.best_by_cost import best_by_cost
from search.pages.figures.effort.epochs_by_outcome import epochs_by_outcome
from search.pages.figures.effort.timeline import timeline
from search.plan.stored import StoredSearch
from search.report.results.summary import Summary


def effort(searches: Sequence[StoredSearch], summaries: Sequence[Summary]) -> Section:
    """When each slot trained what, the epochs by how their trials ended, and the best value by what it had cost."""
    figures = (
        *(timeline(search) for search in searches),
        epochs_by_outcome(searches),
        best_by_cost(searches, summaries),
    )
    return Section(
        name="effort",
        title="Where time and epochs went",
        sentences=tuple(_time(summary) for summary in summaries),
        figures=tuple(figure for figure in figures if figure),
        missing=() if any(figures) else ("No epoch was trained yet.",),
    )


def _time(summary: Summary) -> str:
    time = summary.time
    slots = f"{time.slots} slot{'s' * (time.slots != 1)}"
    busy = f", of which the trials trained {time.trial_work_s / time.slots:,.0f} s each" if time.slots else ""
    return (
        f"{summary.name}: {time.wall_s:,.0f} s in all, {time.startup_s:,.0f} s of them before a first epoch; the "
        f"search itself took {time.search_wall_s:,.0f} s on {slots}{busy}."
    )
