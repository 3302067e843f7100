"""What a search came to so far, also while it runs and before its first summary was written."""

from search.config.search_config import parse_config
from search.plan.checks.findings import Findings
from search.plan.checks.spaces import check_spaces
from search.plan.plan import Plan
from search.plan.runs import stored_split
from search.plan.search import Search
from search.plan.stored import StoredSearch
from search.report.results.summary import Summary, stored_summary
from search.report.summary import summarise
from search.study.storage.copy import StorageCopy
from trainables.mistakes import Mistakes


def summary_so_far(stored: StoredSearch) -> Summary:
    """The summary that was written last; while a driver holds the search, and before the first, one of its records.

    Nothing is written, and neither images nor losses are needed.

    Raises:
        Mistakes: the search has no studies yet, or its file cannot be read.
    """
    written = _written(stored)
    if written is not None and stored.folder.driver() is None:
        return written
    return summarise(search_so_far(stored), written)


def search_so_far(stored: StoredSearch) -> Search:
    """The search with its studies as they are stored now, for reading; nothing that is done with it is written.

    Raises:
        Mistakes: the search has no studies yet, or its file cannot be read.
    """
    if stored.storage is None:
        raise Mistakes(f"{stored.name} has no studies yet; wait until its first trial began.")
    config, found = parse_config(dict(stored.config)), Findings()
    spaces = check_spaces(found, config, accepted=True)
    found.raise_if_any()
    plan = Plan(config=config, folder=stored.folder, split=stored_split(stored.folder), spaces=spaces)
    return Search(plan=plan, storage=StorageCopy(stored.storage, without=()))


def _written(stored: StoredSearch) -> Summary | None:
    if not stored.folder.summary.exists():
        return None
    try:
        return stored_summary(stored.folder)
    except Mistakes:  # another version's: the records say the same in today's form
        return None
