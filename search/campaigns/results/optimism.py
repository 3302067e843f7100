"""How a campaign's values went from the search to the test classes: what was flattering falls on the way."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import cast

from search.campaigns.campaign import Campaign
from search.campaigns.results.cells import unit
from search.campaigns.results.types import Optimism
from search.report.comparison import rows_of
from search.report.results.row import Row
from search.report.results.summary import Summary
from search.selection.role import Role


def optimism(campaign: Campaign, summaries: Sequence[Summary]) -> dict[Role, Optimism]:
    """The objective's mean over all searches and losses after each stage, by the table's roles.

    A stage that some search lacks, as trainings on all classes lack a validation, is None. Nothing where the searches
    differ in their objective.
    """
    objectives = {summary.objective for summary in summaries}
    if len(objectives) > 1:
        return {}
    (objective,) = objectives
    rows = [row for summary in summaries for row in rows_of(summary)]
    return {
        role: _optimism([row for row in rows if row.role is role], objective) for role in campaign.config.table.roles
    }


def _optimism(rows: Sequence[Row], objective: str) -> Optimism:
    tested = [(row.test or {}).get(objective) for row in rows]
    return Optimism(
        objective=objective,
        count=len(rows),
        search=_mean([row.search_value for row in rows]),
        confirmed=_mean([row.confirmed.mean if row.confirmed else None for row in rows]),
        final=_mean([row.final.mean if row.final else None for row in rows]),
        test_small=_mean([row.test_small.mean if row.test_small else None for row in rows]),
        test=_mean([entry.mean if entry else None for entry in tested]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def optimism_sentences(found: Mapping[Role, Optimism]) -> Iterator[str]:
    """A sentence a role, and one that tells apart what of the way down is the choice, the classes, and the gallery."""
    for role, entry in found.items():
        scale = unit(entry.objective)
        stages = (
            (entry.search, "in the search"),
            (entry.confirmed, "confirmed"),
            (entry.final, "in the trainings for the test"),
            (entry.test_small, "on as many test classes as validate"),
            (entry.test, "on the test classes"),
        )
        if values := [f"{value * scale:.2f} {words}" for value, words in stages if value is not None]:
            yield f"{entry.objective} of the {role} configurations, mean of {entry.count}: {', '.join(values)}"
        if None not in (way := (entry.search, entry.final, entry.test_small, entry.test)):
            lost = [f"{(before - after) * scale:+.2f}" for before, after in pairwise(cast("tuple[float, ...]", way))]
            choice, classes, gallery = lost
            yield f"of the way down, {choice} is the choice, {classes} other classes, and {gallery} the larger gallery"
