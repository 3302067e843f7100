"""The report of one search, or of several of one split."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from search.pages.document.report import Report
from search.pages.figure import Section
from search.pages.sections.again import again
from search.pages.sections.answer import answer
from search.pages.sections.effort import effort
from search.pages.sections.loss import loss_section
from search.pages.sections.models import models_section
from search.pages.sections.outcome import outcome
from search.plan.stored import StoredSearch
from search.report.comparison import compare
from search.report.results.comparison import Comparison
from search.report.results.summary import Summary
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
        sections=(
            answer(comparison, folders),
            outcome(comparison),
            *_of_each(searches, summaries, comparison),
            effort(searches, summaries),
            again(searches),
        ),
    )


def _of_each(
    searches: Sequence[StoredSearch], summaries: Sequence[Summary], comparison: Comparison
) -> Iterator[Section]:
    """What only one search has: each loss, and what its models do."""
    for search, summary in zip(searches, summaries, strict=True):
        own = comparison if len(searches) == 1 else compare([search.folder], [summary])
        for section in (*(loss_section(search, summary, loss) for loss in search.losses), models_section(search, own)):
            yield section if len(searches) == 1 else _called_after(search.name, section)


def _called_after(search: str, section: Section) -> Section:
    """The section with names and titles that no other search's has."""
    prefix = re.sub(r"[^A-Za-z0-9]+", "-", search)
    return replace(
        section,
        name=f"{prefix}-{section.name}",
        title=f"{search}: {section.title}",
        figures=tuple(replace(figure, name=f"{prefix}-{figure.name}") for figure in section.figures),
    )
