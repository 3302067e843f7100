"""The report of a campaign: its study, and where its searches' time went."""

from search.campaigns.config import read_config
from search.campaigns.folder import CampaignFolder
from search.campaigns.results.types import CampaignResult
from search.config.yaml_file import read_yaml
from search.pages.document.report import Report
from search.pages.figure import Section
from search.pages.sections.again import again
from search.pages.sections.effort import effort
from search.pages.sections.study import study
from search.plan.stored import stored_search
from search.report.so_far import summary_so_far
from trainables.files.whole import reading


def campaign_report(folder: CampaignFolder) -> Report:
    """What the campaign's records say, as far as it has come.

    Raises:
        Mistakes: its records cannot be read.
    """
    config = read_config(read_yaml(folder.config))
    begun = [name for name in folder.searches() if (folder.runs / name / "search.yaml").exists()]
    searches = [stored for name in begun if (stored := stored_search(folder.runs, name)).storage]
    summaries = [summary_so_far(search) for search in searches]
    if folder.result.exists():
        with reading(folder.result, "`holdout campaign` with the campaign's file writes it again"):
            result = CampaignResult.model_validate_json(folder.result.read_bytes())
        told = study(config, result)
    else:
        why = f"the campaign has no result yet; {len(begun)} of its {len(folder.searches())} searches have begun."
        told = Section(name="study", title=config.study, missing=(why,))
    return Report(
        title=config.name,
        subtitle=f"{config.study}: {len(folder.searches())} searches, tested together",
        sections=(told, effort(searches, summaries), again(searches, folder.config)),
    )
