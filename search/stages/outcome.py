"""What a search came to when its stages were carried out."""

from dataclasses import dataclass
from functools import cached_property

from search.plan.search import Search
from search.report.comparison import Comparison, compare
from search.report.summary import Summary, write_summary


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A search with the summary of its last stage."""

    search: Search
    summary: Summary

    @cached_property  # MLflow shows what the command line prints
    def comparison(self) -> Comparison:
        """The search's losses beside each other."""
        return compare([self.search.plan.folder], [self.summary])


def recorded_outcome(search: Search) -> Outcome:
    """What a search came to, by its records; ``summary.json`` is brought up to date."""
    return Outcome(search=search, summary=write_summary(search))
