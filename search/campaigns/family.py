"""The campaign's table as it is frozen with the choices."""

from search.campaigns.campaign import Campaign
from search.campaigns.results.comparisons import paired_columns, paired_rows, rows_of_role, tested_metrics
from search.campaigns.results.differences import wanted_pairs
from search.selection.family import Family


def campaign_family(campaign: Campaign) -> Family:
    """What the campaign file alone says of its table, before there are numbers."""
    pairs = wanted_pairs(paired_rows(campaign), paired_columns(campaign))
    return Family(
        metrics=frozenset(tested_metrics(campaign)),
        rows=frozenset(row for role in campaign.config.table.roles for row in rows_of_role(campaign, role)),
        pairs=frozenset(map(frozenset, pairs)),
    )
