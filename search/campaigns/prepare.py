"""A campaign's folder, and the checks before it begins."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.config.campaign import Campaign, parse_campaign
from search.config.search_config import SearchConfig
from search.plan.make_plan import read_plan
from search.plan.plan import Plan
from search.plan.runs import CampaignFolder, RunFolder
from search.selection import Ledger, Selection
from trainables.mistakes import Mistakes, raise_if_any

# A campaign's own folder: ``campaign.yaml``, from its beginning, and ``campaign.json``, what it came to.


# Everything that can be wrong with a campaign, before anything of it is created.


def read_campaign_plans(content: Mapping[str, Any], runs: Path) -> tuple[Campaign, list[Plan]]:
    """The campaign file ``content``, and the plans of its searches, which begin or go on below ``runs``.

    Raises:
        Mistakes: all that can be known to be wrong with the file and any of its searches, or other searches than the
            campaign may go on with.
    """
    plans: list[Plan] = []

    def planned(search: dict[str, Any]) -> SearchConfig:
        plans.append(read_plan(search, runs))
        return plans[-1].config

    try:
        campaign = parse_campaign(content, planned)
    except Mistakes as error:
        raise Mistakes(list(dict.fromkeys([*_mistakes_of_form(content), *error.sentences]))) from error
    folder = CampaignFolder(runs, campaign.name)
    if RunFolder(runs, campaign.name).config.exists():
        raise Mistakes(f"name: {campaign.name} is a search in {runs}; call the campaign something else.")
    raise_if_any([*_vanished(plans, folder), *_late(plans, folder)])
    return campaign, plans


def _mistakes_of_form(content: Mapping[str, Any]) -> tuple[str, ...]:
    """What is wrong in the file itself, also between its searches, which is not looked at where one cannot begin."""
    try:
        parse_campaign(content)
    except Mistakes as error:
        return error.sentences
    return ()


def _vanished(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """What was tried stays in the table: a variant that did badly is not dropped silently."""
    names = [plan.config.name for plan in plans]
    gone = [name for name in folder.searches() if name not in names and RunFolder(folder.runs, name).config.exists()]
    if gone:
        yield (
            f"vary: {folder.name} began with {', '.join(gone)} too; put the labels back, or give the campaign a new "
            "name. Labels may be added until the configurations are frozen; a table that changes after that says so."
        )


def _late(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """One opening is for all searches, so none may begin or join after it.

    Openings by other searches of the same names are another campaign's, in another runs folder.
    """
    begun = folder.searches() or [plan.config.name for plan in plans]
    late = ", ".join(
        plan.config.name for plan in plans if not (plan.config.name in begun and plan.folder.config.exists())
    )
    frozen = {plan.config.name: plan.folder.selection for plan in plans if plan.folder.selection.exists()}
    if not (late and frozen):
        return
    ledger = Ledger(plans[0].folder.openings)
    tested = [name for name, selection in frozen.items() if ledger.of_selection(Selection.load(selection).digest)]
    if tested:
        yield (
            f"{late}: the test classes were opened for {', '.join(tested)}, and a campaign opens them once for all of "
            "its searches; give the larger campaign a new name."
        )
    else:
        yield (
            f"{late}: the configurations of {', '.join(frozen)} are frozen already, with the rows and pairs of their "
            "table; give the larger campaign a new name."
        )
