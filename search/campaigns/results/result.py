"""From a campaign's searches to its result."""

from collections.abc import Sequence

from search.campaigns.campaign import Campaign
from search.campaigns.family import campaign_family
from search.campaigns.folds import fold_models
from search.campaigns.results.cells import measured
from search.campaigns.results.comparisons import comparisons
from search.campaigns.results.curves import campaign_curves
from search.campaigns.results.optimism import optimism
from search.campaigns.results.standings import published_number, standings
from search.campaigns.results.sweeps import sweeps
from search.campaigns.results.types import CampaignEpochs, CampaignResult
from search.plan.runs import RunFolder
from search.plan.search import Search
from search.report.comparison import rows_of
from search.report.results.summary import Summary
from search.report.seal.family import chosen_after_opening
from search.report.seal.image_sets import image_set_of, openings_told, training_told
from search.study.names import Stage
from search.study.records import epochs_trained


def campaign_result(campaign: Campaign, results: Sequence[tuple[Search, Summary]]) -> CampaignResult:
    """The result, derived from the searches' records.

    Args:
        campaign: the campaign.
        results: its searches with their summaries, in the order of its members.
    """
    searches, summaries = [search for search, _ in results], [summary for _, summary in results]
    cells = measured(campaign, summaries)
    pairs, trends, left_out = comparisons(campaign, results)
    folders = [search.plan.folder for search in searches]
    by_image_set: dict[str, list[RunFolder]] = {}
    for folder in folders:
        by_image_set.setdefault(image_set_of(folder), []).append(folder)
    tested = [row.key for summary in summaries for row in rows_of(summary) if row.test]
    return CampaignResult(
        name=campaign.name,
        study=campaign.config.study,
        searches={
            search.name: dict(zip(campaign.config.vary, member.labels, strict=True))
            for search, member in zip(searches, campaign.members, strict=True)
        },
        cells=tuple(cells),
        chosen={
            summary.name: {loss: entry.confirmed.params for loss, entry in summary.losses.items() if entry.confirmed}
            for summary in summaries
        },
        tournaments={
            role: found for role in campaign.config.table.roles if (found := standings(campaign, cells, role))
        },
        published_tournaments={
            role: found
            for role in campaign.config.table.roles
            if (found := standings(campaign, cells, role, published_number))
        },
        optimism=optimism(campaign, summaries),
        pairs=tuple(pairs),
        trends=tuple(trends),
        left_out=tuple(left_out),
        folds=tuple(model for search in searches for model in fold_models(campaign, search)),
        anytime=tuple(campaign_curves(campaign, summaries)),
        epochs=CampaignEpochs(
            search=_epochs(searches, Stage.SEARCH),
            confirm=_epochs(searches, Stage.SELECT),
            final=_epochs(searches, Stage.TEST),
        ),
        openings={digest: openings_told(sharing) for digest, sharing in by_image_set.items()},
        warnings=(
            *training_told(folders),
            *chosen_after_opening(folders, campaign_family(campaign), tested),
            *sweeps(campaign),
        ),
    )


def _epochs(searches: Sequence[Search], stage: Stage) -> int:
    return sum(epochs_trained(search.trials(loss, stage)) for search in searches for loss in search.config.loss_names)
