"""Checks of a campaign before anything is created."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search.config.campaign import Campaign, parse_campaign
from search.config.search_config import SearchConfig
from search.plan.make_plan import read_plan
from search.plan.plan import Plan
from search.plan.records import Records
from search.plan.runs import CampaignFolder, RunFolder
from trainables.common.errors import InvalidInput, raise_if_any


def read_campaign_plans(content: Mapping[str, Any], runs: Path) -> tuple[Campaign, list[Plan]]:
    """Validate the campaign file ``content`` and plan its searches, which start or resume below ``runs``.

    Raises:
        InvalidInput: all mistakes in the file and its searches, or searches that were removed or added too late.
    """
    plans: list[Plan] = []

    def planned(search: dict[str, Any]) -> SearchConfig:
        plans.append(read_plan(search, runs))
        return plans[-1].config

    try:
        campaign = parse_campaign(content, planned)
    except InvalidInput as error:
        raise InvalidInput(list(dict.fromkeys([*_mistakes_of_form(content), *error.sentences]))) from error
    folder = CampaignFolder(runs, campaign.name)
    if RunFolder(runs, campaign.name).config.exists():
        raise InvalidInput(f"name: {campaign.name} is a search in {runs}; give the campaign another name.")
    raise_if_any([*_vanished(plans, folder), *_late(plans, folder), *_without_opening(plans)])
    return campaign, plans


def _mistakes_of_form(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the mistakes in the file itself: if a search cannot be planned, parsing stops before some of them."""
    try:
        parse_campaign(content)
    except InvalidInput as error:
        return error.sentences
    return ()


def _without_opening(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a mistake for searches that begin if their vault has no opening for each."""
    left = [plan.openings_left for plan in plans if plan.openings_left is not None]
    if left and min(left) < len(left):
        yield (
            f"final.vault: {len(left)} searches begin, each of which takes an opening, and the vault has {min(left)} "
            "left; ask its owner for more."
        )


def _vanished(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """Yield a mistake for searches that were removed: variants with bad results must not be dropped silently."""
    names = [plan.config.name for plan in plans]
    gone = [name for name in folder.searches() if name not in names and RunFolder(folder.runs, name).config.exists()]
    if gone:
        yield (
            f"vary: {folder.name} started with {', '.join(gone)} too; put the labels back, or give the campaign a new "
            "name. Labels may be added until the configurations are frozen; later changes of the table are reported."
        )


def _late(plans: Sequence[Plan], folder: CampaignFolder) -> Iterator[str]:
    """Yield a mistake for searches that start after the choices are frozen: one opening serves all searches.

    Openings by searches of the same names in another runs folder belong to another campaign.
    """
    begun = folder.searches() or [plan.config.name for plan in plans]
    late = ", ".join(
        plan.config.name for plan in plans if not (plan.config.name in begun and plan.folder.config.exists())
    )
    frozen = [Records(plan.folder, plan) for plan in plans if plan.folder.selection.exists()]
    if not (late and frozen):
        return
    tested = [search.name for search in frozen if search.ledger.of_selection(search.frozen_selection.digest)]
    why = (
        f"the test classes were opened for {', '.join(tested)}, and a campaign opens them once for all of its searches"
        if tested
        else f"the configurations of {', '.join(search.name for search in frozen)} are frozen already, with the rows "
        "and pairs of their table"
    )
    yield f"{late}: {why}; give the extended campaign a new name."
