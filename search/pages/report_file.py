"""The report of searches, or of a campaign, as a file."""

import logging
from collections.abc import Sequence
from pathlib import Path

from search.campaigns.folder import CampaignFolder
from search.pages.campaign_report import campaign_report
from search.pages.document.report import Report, as_html
from search.pages.search_report import search_report
from search.plan.runs import RunFolder
from search.plan.stored import stored_search
from trainables.files.whole import write_text
from trainables.mistakes import Mistakes

logger = logging.getLogger(__name__)


def write_report(runs: Path, names: Sequence[str], file: Path | None = None) -> Path:
    """Write the report of the campaign, or of the searches of one split, with these names below ``runs``.

    Args:
        runs: the runs folder.
        names: one campaign, or one or more searches.
        file: where to write it; None: ``report.html`` in the folder of the first name.

    Raises:
        Mistakes: there are none, they cannot be compared, or their records cannot be read.
    """
    text = as_html(_report(runs, names))
    file = file or RunFolder(runs, names[0]).report
    write_text(file, text)
    return file


def try_to_write_report(runs: Path, name: str) -> None:
    """The same at the end of a search or campaign, whose result stands whatever becomes of its pictures."""
    try:
        write_report(runs, [name])
    except Exception as error:  # whatever a library that draws raises
        logger.warning("The report was not drawn (%s); `holdout report %s` tries again.", type(error).__name__, name)


def _report(runs: Path, names: Sequence[str]) -> Report:
    campaigns = [name for name in names if RunFolder(runs, name).is_campaign]
    if not campaigns:
        return search_report([stored_search(runs, name) for name in names])
    if len(names) > 1:
        raise Mistakes(
            f"{campaigns[0]} is a campaign, which has a report of its own; give one campaign, or the names of searches."
        )
    return campaign_report(CampaignFolder(runs, campaigns[0]))
