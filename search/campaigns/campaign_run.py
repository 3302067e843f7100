"""What a campaign's run in MLflow shows."""

from search.campaigns.campaign import Campaign
from search.campaigns.folder import CampaignFolder
from search.campaigns.results.text_tables import campaign_csv, campaign_tables
from search.campaigns.results.types import CampaignResult
from search.report.tables.markdown import as_markdown, rows_as_markdown
from search.tracking.described import SummaryRun


def campaign_run(campaign: Campaign, result: CampaignResult, folder: CampaignFolder) -> SummaryRun:
    """The run of a campaign that came to ``result``: its table, and what its searches trained."""
    tables = campaign_tables(campaign, result, [])
    sentence = f"{campaign.config.study} One run below this one a search."
    return SummaryRun(
        description=f"{rows_as_markdown(tables[0])}\n\n{sentence}",
        metrics={
            "epochs/search": result.epochs.search,
            "epochs/confirm": result.epochs.confirm,
            "epochs/final": result.epochs.final,
        },
        texts={"table.md": as_markdown(tables), "table.csv": campaign_csv(result)},
        files=[path for path in (folder.config, folder.result, folder.report) if path.exists()],
    )
