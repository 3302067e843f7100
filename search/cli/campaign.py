"""``holdout campaign``: a study of several searches, and its table."""

from pathlib import Path
from typing import Annotated

import typer

from search.campaigns.campaign import parse_campaign
from search.campaigns.prepare import campaign_plans
from search.campaigns.rendered import rendered
from search.campaigns.result import write_result
from search.cli.output import RUNS, Json, Runs, messages, show
from search.pipeline import run_stages
from search.recipes import campaign_or_file
from search.yaml_file import apply_settings, read_yaml


def campaign(
    file: Annotated[Path, typer.Argument(metavar="CAMPAIGN.yaml", help="A campaign file, or a campaign's name.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one key of the file.")
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Start a study of several searches, go on with it, or print the result of a finished one."""
    campaign = parse_campaign(apply_settings(read_yaml(campaign_or_file(file)), settings or []))
    plans = campaign_plans(campaign, runs)
    searches = run_stages(plans, messages, plans[0].config.stages, opener=campaign.name)
    result = write_result(campaign, searches)
    show(rendered(campaign, result, settings or []), result, as_json)
