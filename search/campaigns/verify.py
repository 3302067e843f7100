"""Checks of a campaign's stored result against its records."""

from collections.abc import Iterator, Sequence

from search.campaigns.prepare import stored_campaign
from search.campaigns.result import campaign_result
from search.config.campaign import Campaign
from search.config.search_config import settled
from search.driver.verify import Check, check, code_named, differing, guarded, stored_copy, verify
from search.plan.make_plan import plan_from_rules
from search.plan.runs import CampaignFolder, RunFolder, trusted_config
from search.plan.search import OpenedSearch
from search.report.summary import summarise
from search.trust import check_code
from trainables.files import read_json

GROWS = "openings"
"""The part of the result about the ledger, which later openings extend."""


def verify_campaign(folder: CampaignFolder) -> Iterator[Check]:
    """Yield the checks of the campaign in ``folder``, up to the first one that fails.

    Raises:
        InvalidInput: one of its searches names a place or code that the user did not allow.
    """
    for name in folder.searches():
        if (run := RunFolder(folder.runs, name)).config.exists():
            check_code(run.path, code_named(run))
    yield from guarded(lambda: _checks(folder))


def _checks(folder: CampaignFolder) -> Iterator[Check]:
    campaign = stored_campaign(folder)
    for member in campaign.members:
        run = RunFolder(folder.runs, member.config.name)
        if not run.config.exists():
            yield Check(run.name, is_there=False)
            continue
        stored = trusted_config(run, addresses=())
        yield check(
            f"{run.name}: its file, from campaign.yaml",
            differing(f"{run.name} search.yaml ", settled(stored), settled(member.config)),
        )
        yield from verify(run)
    yield _result_check(folder, campaign)


def _result_check(folder: CampaignFolder, campaign: Campaign) -> Check:
    runs = [RunFolder(folder.runs, member.config.name) for member in campaign.members]
    searches = [stored_copy(plan_from_rules(run)) for run in runs if run.config.exists()]
    ready = [search for search in searches if search and all(map(search.is_done, search.config.stages))]
    if len(ready) < len(runs):
        return Check("campaign.json: some searches are not done", is_there=False)
    return check("campaign.json: table and pairs", _problems(folder, campaign, ready))


def _problems(folder: CampaignFolder, campaign: Campaign, searches: Sequence[OpenedSearch]) -> Iterator[str]:
    if not folder.result.exists():
        yield f"campaign.json is missing, and all searches of {campaign.name} are done."
        return
    anew = campaign_result(campaign, [(search, summarise(search)) for search in searches])
    stored, recomputed = read_json(folder.result), anew.model_dump(mode="json")
    for result in (stored, recomputed):
        result[GROWS] = sorted(result[GROWS])
    yield from differing("campaign.json ", stored, recomputed)
