"""A campaign's result for people."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table

from search.campaigns.campaign import Campaign
from search.campaigns.cells import Cell
from search.campaigns.config import VALIDATION
from search.campaigns.table import NOTHING, Grid, campaign_grid
from trainables.metrics.distances import DISTANCES


def rendered(campaign: Campaign, result: Mapping[str, Any], settings: Sequence[str]) -> RenderableType:
    """The table, what it says, and the tournaments."""
    cells = [Cell(**cell) for cell in result["cells"]]
    grid = campaign_grid(campaign, cells)
    table = Table(title=f"{result['name']}: {result['study']}", box=SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    for head in grid.heads:
        table.add_column(head, no_wrap=True)
    for column in grid.columns:
        table.add_column(column, justify="right")
    for labels, texts in grid.rows:
        table.add_row(*labels, *texts)
    table.caption = "\n".join(_caption(campaign, result, grid, settings))
    chosen = [_chosen(result)] if "chosen" in campaign.config.table.roles else []
    return Group(table, *chosen, *(_tournament(role, standings) for role, standings in result["tournaments"].items()))


def _caption(campaign: Campaign, result: Mapping[str, Any], grid: Grid, settings: Sequence[str]) -> Iterator[str]:
    metrics = campaign.config.table.metrics
    objective = campaign.members[0].config.search.objective
    if grid.fixed:
        yield grid.fixed
    yield "per cent, mean ± sample deviation over training seeds" + (
        "; distances as they are" if set(metrics) & set(DISTANCES) else ""
    )
    if VALIDATION in metrics:
        yield f"{VALIDATION}: {objective} on the validation classes, confirmed with fresh seeds"
    for published in campaign.config.published:
        yield f"in brackets: {published.source}"
    if settings:
        yield f"set: {', '.join(settings)}"
    spent = result["epochs"]
    yield f"epochs: {spent['search']:,} searching, {spent['confirm']:,} confirming, {spent['final']:,} for the test"
    yield from result["openings"].values()


def _chosen(result: Mapping[str, Any]) -> Table:
    table = Table(title="chosen", title_justify="left", box=SIMPLE_HEAD)
    for column in ("search", "loss", "hyperparameters"):
        table.add_column(column, overflow="fold")
    for search, losses in result["chosen"].items():
        for loss, params in losses.items():
            told = (
                f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
                for name, value in params.items()
            )
            table.add_row(search, loss, ", ".join(told))
    return table


def _tournament(role: str, standings: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=f"tournament, {role}", title_justify="left", box=SIMPLE_HEAD)
    for column in ("loss", "ranks summed", "mean", "deviation"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for standing in standings:
        deviation = NOTHING if standing["std"] is None else f"{standing['std']:.2f}"
        table.add_row(standing["loss"], f"{standing['total']:g}", f"{standing['mean']:.2f}", deviation)
    return table
