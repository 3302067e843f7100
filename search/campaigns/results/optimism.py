"""How a campaign's values went from the search to the test classes: what was flattering falls on the way."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.config import Role
from search.campaigns.results.cells import unit
from search.report.comparison import rows_of
from search.report.pairs import DEFAULT, TUNED

WORDS = {
    "search": "in the search",
    "confirmed": "confirmed",
    "final": "in the trainings for the test",
    "test": "on the test classes",
}
"""The stages, and how a sentence names them."""


def optimism(campaign: Campaign, summaries: Sequence[Mapping[str, Any]]) -> dict[Role, dict[str, Any]]:
    """The objective's mean over all searches and losses after each stage, by the table's roles.

    A stage that some search lacks, as trainings on all classes lack a validation, is None. Nothing where the searches
    differ in their objective.
    """
    objectives = {summary["objective"] for summary in summaries}
    if len(objectives) > 1:
        return {}
    (objective,) = objectives
    rows = [row for summary in summaries for row in rows_of(summary)]
    return {role: _of_role(rows, role, objective) for role in campaign.config.table.roles}


def _of_role(rows: Sequence[Mapping[str, Any]], role: Role, objective: str) -> dict[str, Any]:
    found = [_stages(row, objective) for row in rows if row["role"] == (DEFAULT if role == "default" else TUNED)]
    means = {stage: _mean([stages[stage] for stages in found]) for stage in WORDS}
    return {"objective": objective, "count": len(found), **means}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None


def _stages(row: Mapping[str, Any], objective: str) -> dict[str, float | None]:
    return {
        "search": row["search_value"],
        **{stage: row[stage] and row[stage]["mean"] for stage in ("confirmed", "final")},
        "test": row["test"] and row["test"].get(objective, {}).get("mean"),
    }


def optimism_told(result: Mapping[Role, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence a role."""
    for role, entry in result.items():
        scale = unit(entry["objective"])
        told = [f"{entry[stage] * scale:.2f} {words}" for stage, words in WORDS.items() if entry[stage] is not None]
        if told:
            yield f"{entry['objective']} of the {role} configurations, mean of {entry['count']}: {', '.join(told)}"
