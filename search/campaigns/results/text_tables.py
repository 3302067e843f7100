"""A campaign's result as text_tables of text, and as records for programs."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from search.campaigns.campaign import Campaign
from search.campaigns.config import LOSS, VALIDATION
from search.campaigns.results.cells import Cell, unit
from search.campaigns.results.curves import search_axes
from search.campaigns.results.differences import PAIRED
from search.campaigns.results.optimism import optimism_told
from search.campaigns.results.table import campaign_table
from search.report.text_tables import NOTHING, TextTable, anytime_table, parameters, verdict
from trainables.metrics.table import DISTANCES

MANY = 20
"""With more pairs than this, only those that differ are shown."""


def campaign_tables(campaign: Campaign, result: Mapping[str, Any], settings: Sequence[str]) -> list[TextTable]:
    """The table, what was chosen, the tournaments, the curves and the differences.

    ``settings`` are those of the command line.
    """
    cells = [Cell(**cell) for cell in result["cells"]]
    title = f"{result['name']}: {result['study']}"
    found = [campaign_table(campaign, cells, title, list(_notes(campaign, result, settings)))]
    if "chosen" in campaign.config.table.roles:
        found.append(_chosen(result))
    found += [_tournament(role, standings) for role, standings in result["tournaments"].items()]
    if result["anytime"]:
        found.append(_anytime(campaign, result["anytime"]))
    return [*found, _differences(result)] if result["pairs"] or result["left_out"] else found


def campaign_csv(result: Mapping[str, Any]) -> str:
    """One cell a line, in our unit (0 to 1)."""
    text = io.StringIO()
    numbers = ("mean", "std", "published", "seeds")
    writer = csv.DictWriter(text, (*result["cells"][0]["place"], *numbers), lineterminator="\n")
    writer.writeheader()
    for cell in result["cells"]:
        writer.writerow({**cell["place"], **{key: cell[key] for key in numbers}})
    return text.getvalue()


def _notes(campaign: Campaign, result: Mapping[str, Any], settings: Sequence[str]) -> Iterator[str]:
    metrics = campaign.config.table.metrics
    distances = "; distances as they are" if set(metrics) & set(DISTANCES) else ""
    folds = " and folds" if any(member.config.split.folds for member in campaign.members) else ""
    yield f"per cent, mean ± sample deviation over training seeds{folds}{distances}"
    if VALIDATION in metrics:
        objective = campaign.members[0].config.search.objective
        yield f"{VALIDATION}: {objective} on the validation classes, confirmed with fresh seeds"
    for published in campaign.config.published:
        yield f"in brackets: {published.source}"
    if settings:
        yield f"set: {', '.join(settings)}"
    spent = result["epochs"]
    yield from optimism_told(result["optimism"])
    yield f"epochs: {spent['search']:,} searching, {spent['confirm']:,} confirming, {spent['final']:,} for the test"
    yield from result["openings"].values()


def _chosen(result: Mapping[str, Any]) -> TextTable:
    return TextTable(
        title="Chosen",
        header=("search", LOSS, "hyperparameters"),
        rows=tuple(
            (search, loss, parameters(chosen))
            for search, losses in result["chosen"].items()
            for loss, chosen in losses.items()
        ),
        labels=2,
        notes=(),
    )


def _tournament(role: str, standings: Sequence[Mapping[str, Any]]) -> TextTable:
    return TextTable(
        title=f"Tournament, {role}",
        header=(LOSS, "ranks summed", "mean", "deviation"),
        rows=tuple(
            (
                standing["loss"],
                f"{standing['total']:g}",
                f"{standing['mean']:.2f}",
                NOTHING if standing["std"] is None else f"{standing['std']:.2f}",
            )
            for standing in standings
        ),
        labels=1,
        notes=(),
    )


def _anytime(campaign: Campaign, curves: Sequence[Mapping[str, Any]]) -> TextTable:
    objective = campaign.members[0].config.search.objective
    scale = unit(objective)
    text_table = anytime_table(
        objective,
        [(f"{curve['way']}/{curve[LOSS]}", curve) for curve in curves],
        lambda value: f"{scale * value:.2f}",
    )
    axes = search_axes(campaign)
    others = [axis for axis, labels in campaign.config.vary.items() if axis not in axes and len(labels) > 1]
    return replace(text_table, notes=(*text_table.notes, *(f"mean over {axis}" for axis in others)))


def _differences(result: Mapping[str, Any]) -> TextTable:
    pairs = result["pairs"]
    shown = pairs if len(pairs) <= MANY else [pair for pair in pairs if pair["differ"]]
    count = f"{sum(pair['differ'] for pair in pairs)} of {len(pairs)} pairs differ"
    return TextTable(
        title="Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p (Holm)", ""),
        rows=tuple(_difference(pair) for pair in shown),
        labels=1,
        notes=(*((f"{count} in {pairs[0]['metric']}; {PAIRED}",) if pairs else ()), *result["left_out"]),
    )


def _difference(pair: Mapping[str, Any]) -> tuple[str, ...]:
    scale = unit(pair["metric"])
    low, high = (scale * end for end in pair["ci95"])
    difference = f"{scale * pair['difference']:+.2f}"
    return " − ".join(pair["names"]), difference, f"[{low:.2f}, {high:.2f}]", f"{pair['p_holm']:.4f}", verdict(pair)
