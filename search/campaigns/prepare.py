"""Everything that can be wrong with a campaign, before anything of it is created."""

from pathlib import Path

from search.campaigns.campaign import Campaign
from search.campaigns.each import for_each
from search.plan import Plan
from search.resume import started_or_resumed
from search.runs import RunFolder
from trainables.mistakes import Mistakes


def campaign_plans(campaign: Campaign, runs: Path) -> list[Plan]:
    """The plans of the campaign's searches, which begin or go on.

    Raises:
        Mistakes: what is wrong with any of them, or a search that comes after the test classes were opened.
    """
    if RunFolder(runs, campaign.name).config.exists():
        raise Mistakes(f"name: {campaign.name} is a search in {runs}; call the campaign something else.")
    plans = for_each(
        {" ".join(member.labels): member.config for member in campaign.members},
        lambda config: started_or_resumed(config, runs),
    )
    tested = [plan.config.name for plan in plans if plan.folder.test.exists()]
    late = [plan.config.name for plan in plans if not plan.folder.config.exists()]
    if tested and late:
        raise Mistakes(
            f"{', '.join(late)}: the test classes were opened for {', '.join(tested)}, and a campaign opens them once "
            "for all of its searches; give the larger campaign a new name."
        )
    return plans
