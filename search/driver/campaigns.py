"""Campaigns as records: their run in MLflow, their stored file, and their verification."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from search.config.recipes import recipes
from search.config.search_config import SearchConfig, parse_config, paths_of_data, settled
from search.config.yaml_file import read_yaml
from search.driver.make_plan import plan_from_rules
from search.driver.synchronise import make_projection
from search.driver.verify import Check, check, code_named, differing, guarded, lacking, verify
from search.records.campaign import Campaign, merged, parse_campaign
from search.records.plan import Plan
from search.records.records import Records
from search.records.runs import CampaignFolder, RunFolder
from search.results.campaign import CampaignResult, campaign_result
from search.results.summarise import summarise
from search.show.campaigns import campaign_csv, campaign_tables, data_set_tables
from search.text_table import as_markdown, rows_as_markdown
from search.tracking import Content
from search.trust import CAMPAIGN_RECIPE, check_addresses, check_trusted, own_code
from trainables.common.errors import InvalidInput
from trainables.common.files import read_json, reading


def record_campaign(plans: Iterable[Plan], campaign: Campaign, result: CampaignResult, folder: CampaignFolder) -> None:
    """Write the campaign's run, its table and numbers of epochs, to each experiment of its searches (usually one)."""
    of_data = data_set_tables(campaign.config, result)
    several = len(of_data) > 1
    shown = [(f"{table.title}\n\n" if several else "") + rows_as_markdown(table) for table in of_data]
    run = Content(
        description="\n\n".join((*shown, f"{campaign.config.study} The runs below this one are its searches.")),
        metrics={f"epochs/{stage}": count for stage, count in result.epochs.items()},
        texts={"table.md": as_markdown(campaign_tables(campaign.config, result)), "table.csv": campaign_csv(result)},
        files=[path for path in (folder.config, folder.result, folder.report) if path.exists()],
    )
    experiments = {(plan.config.tracking.uri, plan.config.tracking.experiment): plan for plan in plans}
    for plan in experiments.values():
        make_projection(plan).sum_up_campaign(run)


def stored_campaign(folder: CampaignFolder) -> Campaign:
    """Return the stored campaign; raise if it, or a search of it, names a file or code that is not trusted."""
    content = read_yaml(folder.config)
    if content.get(CAMPAIGN_RECIPE) not in recipes():
        check_addresses(folder.config.parent, content, [CAMPAIGN_RECIPE])

    def allowed(search: dict[str, Any]) -> SearchConfig:
        run = RunFolder(folder.runs, str(search.get("name")))
        check_trusted(run.path, own_code(search))
        if run.config.exists():  # a batch size that was not given was fitted to the classes
            with reading(run.config):
                search = merged({"training": {"batch_size": read_yaml(run.config)["training"]["batch_size"]}}, search)
        return parse_config(search, folder.images)

    return parse_campaign(content, allowed)


def verify_campaign(folder: CampaignFolder) -> Iterator[Check]:
    """Yield the checks of the campaign in ``folder``, up to the first one that fails."""
    runs = [RunFolder(folder.runs, name, folder.images) for name in folder.searches()]
    there = [run for run in runs if run.config.exists()]
    for run in there:
        check_trusted(run.path, code_named(run))
    if folder.images and len({json.dumps(paths_of_data(read_yaml(run.config))) for run in there}) > 1:
        raise InvalidInput(f"--images: {folder.name} has several data sets; give it for one of its searches at a time.")
    yield from guarded(lambda: _checks(folder, runs))


def _checks(folder: CampaignFolder, runs: Sequence[RunFolder]) -> Iterator[Check]:
    try:
        campaign = stored_campaign(folder)
    except InvalidInput as mistakes:
        if "dataset." not in mistakes.sentences[0]:
            raise
        for run in runs:
            yield from verify(run) if run.config.exists() else [Check(run.name, is_there=False)]
        yield lacking(folder.result.name, mistakes)
        return
    for run, config in zip(runs, campaign.searches, strict=True):
        if not run.config.exists():
            yield Check(run.name, is_there=False)
            continue
        file = settled(config.model_dump(mode="json"))
        problems = differing(f"{run.name} search.yaml ", settled(read_yaml(run.config)), file)
        yield check(f"{run.name}: its file, from campaign.yaml", problems)
        yield from verify(run)
    begun = [run for run in runs if run.config.exists() and run.journal.exists()]
    searches = [Records(run, plan_from_rules(run)) for run in begun]
    ready = [search for search in searches if all(map(search.is_done, search.config.stages))]
    if len(ready) < len(runs):
        yield Check("campaign.json: some searches are not done", is_there=False)
    else:
        yield check("campaign.json: table and pairs", _problems(folder, campaign, ready))


def _problems(folder: CampaignFolder, campaign: Campaign, searches: Sequence[Records]) -> Iterator[str]:
    if not folder.result.exists():
        yield f"campaign.json is missing, and all searches of {campaign.name} are done."
        return
    anew = campaign_result(campaign, searches, of=summarise)
    stored, recomputed = read_json(folder.result), anew.model_dump(mode="json")
    for result in (stored, recomputed):
        result["openings"] = sorted(result["openings"])
    yield from differing("campaign.json ", stored, recomputed)
