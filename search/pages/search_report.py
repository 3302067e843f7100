"""The report of one search, or of several of one split."""

from collections.abc import Sequence

from search.pages.document.report import Report
from search.pages.sections.again import again
from search.pages.sections.answer import answer
from search.pages.sections.effort import effort
from search.pages.sections.outcome import outcome
from search.plan.stored import StoredSearch
from search.report.comparison import compare
from search.report.so_far import summary_so_far


def search_report(searches: Sequence[StoredSearch]) -> Report:
    """Everything that the searches' records say, as far as they have come.

    Raises:
        Mistakes: the searches have not the same split, test images or objective, or cannot be read.
    """
    folders = [search.folder for search in searches]
    summaries = [summary_so_far(search) for search in searches]
    comparison = compare(folders, summaries)
    losses = list(dict.fromkeys(loss for search in searches for loss in search.losses))
    return Report(
        title=", ".join(search.name for search in searches),
        subtitle=f"{', '.join(losses)}: tuned on validation classes by {comparison.objective}, compared on others",
        sections=(answer(comparison, folders), outcome(comparison), effort(searches, summaries), again(searches)),
    )
