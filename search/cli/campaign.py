"""``holdout campaign``: a study of several searches, and its table."""

from pathlib import Path
from typing import Annotated

import typer

from search.campaigns.campaign import parse_campaign
from search.campaigns.folder import CampaignFolder
from search.campaigns.prepare import campaign_plans
from search.campaigns.result import campaign_result
from search.campaigns.sheets import campaign_csv, campaign_sheets
from search.cli.output import RUNS, Json, Output, Runs, messages, rendered, show
from search.export import refuse_unknown, write_output
from search.pipeline import run_stages
from search.recipes import read_campaign


def campaign(
    file: Annotated[Path, typer.Argument(metavar="CAMPAIGN.yaml", help="A campaign file, or a campaign's name.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one key of the file.")
    ] = None,
    output: Output = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Start a study of several searches, go on with it, or print the result of a finished one."""
    refuse_unknown(output or [])
    campaign = parse_campaign(read_campaign(file, settings or []))
    folder = CampaignFolder(runs, campaign.name)
    plans = campaign_plans(campaign, folder)
    searches = run_stages(
        plans,
        messages,
        plans[0].config.stages,
        opener=campaign.name,
        on_begin=lambda: folder.begin(campaign.config),
    )
    result = campaign_result(campaign, searches)
    folder.end(result)
    sheets = campaign_sheets(campaign, result, settings or [])
    for path in output or []:
        write_output(path, campaign_csv(result), sheets)
    show(rendered(sheets), result, as_json)
