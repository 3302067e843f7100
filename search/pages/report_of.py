"""The report of what is called by names: a campaign, or searches."""

from collections.abc import Sequence
from pathlib import Path

from search.campaigns.folder import CampaignFolder
from search.pages.campaign_report import campaign_report
from search.pages.document.report import Report
from search.pages.search_report import search_report
from search.plan.stored import stored_search
from trainables.mistakes import Mistakes


def report_of(runs: Path, names: Sequence[str]) -> Report:
    """The report of the campaign, or of the searches of one split, with these names below ``runs``.

    Raises:
        Mistakes: there are none, they cannot be compared, or their records cannot be read.
    """
    campaigns = [name for name in names if CampaignFolder(runs, name).config.exists()]
    if not campaigns:
        return search_report([stored_search(runs, name) for name in names])
    if len(names) > 1:
        raise Mistakes(
            f"{campaigns[0]} is a campaign, which has a report of its own; give one campaign, or the names of searches."
        )
    return campaign_report(CampaignFolder(runs, campaigns[0]))
