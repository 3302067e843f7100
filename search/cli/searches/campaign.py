"""``holdout campaign``: a study of several searches, and its table."""

from pathlib import Path
from typing import Annotated

import typer

from search.cli import STARTED
from search.cli.options import RUNS, Json, Output, Runs, Settings
from search.cli.output import messages, rendered, say, show


def campaign(
    file: Annotated[Path, typer.Argument(metavar="CAMPAIGN.yaml", help="A campaign file, or a campaign's name.")],
    settings: Settings = None,
    output: Output = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Start a study of several searches, go on with it, or print the result of a finished one."""
    from search.stages.progress.phase import phase

    with phase(messages(), "Reading the campaign …"):
        from search.campaigns.campaign_run import campaign_run
        from search.campaigns.family import campaign_family
        from search.campaigns.folder import CampaignFolder
        from search.campaigns.prepare import read_campaign_plans
        from search.campaigns.published import comparable
        from search.campaigns.results.result import campaign_result
        from search.campaigns.results.text_tables import campaign_csv, campaign_tables
        from search.config.recipes import read_campaign
        from search.report.tables.output import refuse_unknown, write_output
        from search.stages.pipeline import draw_report, run_stages
        from search.stages.synchronise import behind, synchronise_campaign, try_to_write

        refuse_unknown(output or [])
        content = read_campaign(file, settings or [])
        campaign, plans = read_campaign_plans(comparable(content, read_campaign(file)), runs)
        folder = CampaignFolder(runs, campaign.name)
        say([notice for plan in plans for notice in plan.notices])
    outcomes = run_stages(
        plans,
        messages(),
        plans[0].config.stages,
        started=STARTED,
        opener=campaign.name,
        family=campaign_family(campaign),
        on_begin=lambda: folder.begin(campaign.config),
    )
    result = campaign_result(campaign, [(outcome.search, outcome.summary) for outcome in outcomes])
    if folder.end(result):
        draw_report(runs, campaign.name, messages())
        run = campaign_run(campaign, result, folder)
        if not try_to_write(lambda: synchronise_campaign(plans, campaign.name, run)):
            say([behind(campaign.name)])
    tables = campaign_tables(campaign, result, settings or [])
    for path in output or []:
        write_output(path, campaign_csv(result), tables)
    show("" if as_json else rendered(tables), result.model_dump(mode="json"), as_json)
