"""The commands that show something: status, losses."""

from pathlib import Path
from typing import Annotated, Any

import typer
from optuna.distributions import BaseDistribution, CategoricalDistribution
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.campaigns.folder import CampaignFolder
from search.cli.output import RUNS, Json, Runs, show
from search.cluster.jobs import connected
from search.plan.runs import RunFolder, existing_run, find_runs
from search.plan.status import status_of
from spaces.losses import SPACES
from spaces.space import Parameter
from trainables.losses import LOSSES


def status(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A search or campaign; all of them without it.")
    ] = None,
    runs: Runs = RUNS,
    address: Annotated[
        str | None, typer.Option("--address", metavar="URL", help="Ask the cluster with this dashboard.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What is there and how far it is, on this machine or on a cluster."""
    if address:
        with connected(address) as jobs:
            found = jobs.status(name, str(runs))
    else:
        found = [status_of(folder) for folder in (_named(runs, name) if name else find_runs(runs))]
    place = address or runs
    table = Table(title=f"Searches in {place}" if found else f"There is no search in {place}.", title_justify="left")
    for column in ("search", "stage", "loss", "running", "complete", "pruned", "failed", "of", "best"):
        table.add_column(column, justify="left" if column in ("search", "stage", "loss") else "right")
    for entry in found:
        for position, row in enumerate(entry["courses"]):
            best = "–" if row["best"] is None else f"{row['best']:.4f}"
            numbers = [str(row[key]) for key in ("running", "complete", "pruned", "failed", "target")]
            doing = entry["state"] if entry["driver"] or entry["state"] == "tested" else f"{entry['state']}, stopped"
            first = (entry["name"], doing) if position == 0 else ("", "")
            table.add_row(*first, row["course"], *numbers, best)
        table.add_section()
    notes = [
        Text(f"{entry['name']}/{row['course']}: {row['ended_early']}", style="dim")
        for entry in found
        for row in entry["courses"]
        if row["ended_early"]
    ]
    show(Group(table, *notes), found, as_json)


def _named(runs: Path, name: str) -> list[RunFolder]:
    """The search ``name``, or the searches of the campaign ``name`` that there are."""
    searches = [RunFolder(runs, search) for search in CampaignFolder(runs, name).searches()]
    return [folder for folder in searches if folder.config.exists()] or [existing_run(runs, name)]


def losses(as_json: Json = False) -> None:
    """Every loss, with its paper, equation, defaults and ranges."""
    listed = [
        {
            "name": name,
            "paper": loss.paper,
            "equation": loss.equation,
            "hyperparameters": {
                key: {"default": entry.default, "range": describe(entry), "source": entry.source}
                for key, entry in SPACES[name].items()
            },
        }
        for name, loss in LOSSES.rows.items()
    ]
    show(Group(*(part for entry in listed for part in _loss(entry))), listed, as_json)


def _loss(entry: dict[str, Any]) -> tuple[RenderableType, ...]:
    """One loss for people. Equations are full of brackets, which rich would take for its own: hence Text."""
    table = Table(box=None, padding=(0, 1), show_header=False)
    for width in (18, 18, 34, None):
        table.add_column(min_width=width, overflow="fold")
    for name, parameter in entry["hyperparameters"].items():
        default = "default " + str(parameter["default"])
        table.add_row(name, default, Text(parameter["range"]), Text(parameter["source"], style="dim"))
    heading = Text.assemble((entry["name"], "bold"), "  ", (entry["paper"], "dim"))
    return heading, Text("  " + entry["equation"]), table, Text()


def describe(parameter: Parameter) -> str:
    """A parameter's range in words."""
    text = _range(parameter.distribution)
    conditions = [f"{name} {' or '.join(map(str, values))}" for name, values in parameter.when.items()]
    return f"{text}, where {', '.join(conditions)}" if conditions else text


def _range(distribution: BaseDistribution) -> str:
    if isinstance(distribution, CategoricalDistribution):
        return "one of " + ", ".join(map(str, distribution.choices))
    low, high, step, log = (getattr(distribution, name) for name in ("low", "high", "step", "log"))
    return f"{low:g} to {high:g}" + (f" by {step:g}" if step and not log else "") + (" (log)" if log else "")
