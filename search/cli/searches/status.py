"""``holdout status``: what is there and how far it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search.cli.options import RUNS, Json, Runs, known_names
from search.cli.output import rendered, show

if TYPE_CHECKING:
    from search.plan.stored import StoredSearch
    from search.report.tables.text_table import TextTable

COLUMNS = ("search", "stage", "loss", "running", "complete", "pruned", "failed", "of", "best")


def status(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A search or campaign; all of them without it.", autocompletion=known_names
        ),
    ] = None,
    runs: Runs = RUNS,
    address: Annotated[
        str | None, typer.Option("--address", metavar="URL", help="Ask the cluster with this dashboard.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What is there and how far it is, on this machine or on a cluster."""
    if address:
        from search.cluster.jobs.jobs import connected

        with connected(address) as jobs:
            found = jobs.status(name, str(runs))
    else:
        from dataclasses import asdict

        from search.plan.progress.status import status_of

        found = [asdict(status_of(search)) for search in _searches(runs, name)]
    show("" if as_json else rendered([_table(found, address or str(runs))]), found, as_json)


def _searches(runs: Path, name: str | None) -> list["StoredSearch"]:
    """All searches, the search ``name``, or those searches of the campaign ``name`` that there are."""
    from search.plan.runs import RunFolder, existing_run, find_runs
    from search.plan.stored import StoredSearch

    if name is None:
        return [StoredSearch(folder) for folder in find_runs(runs)]
    if RunFolder(runs, name).is_campaign:
        from search.campaigns.folder import CampaignFolder

        folders = [RunFolder(runs, search) for search in CampaignFolder(runs, name).searches()]
        return [StoredSearch(folder) for folder in folders if folder.config.exists()]
    return [StoredSearch(existing_run(runs, name))]


def _table(found: list[dict[str, Any]], location: str) -> "TextTable":
    from search.report.tables.text_table import NOTHING, TextTable

    rows, notes = [], []
    for entry in found:
        going_on = entry["driver"] or entry["state"] in ("tested", "unreadable")
        state = entry["state"] if going_on else f"{entry['state']}, stopped"
        for row in entry["studies"]:
            best = NOTHING if row["best"] is None else f"{row['best']:.4f}"
            numbers = [str(row[key]) for key in ("running", "complete", "pruned", "failed", "planned")]
            rows.append((entry["name"], state, row["study"], *numbers, best))
            if row["ended_early"]:
                notes.append(f"{entry['name']}/{row['study']}: {row['ended_early']}")
        if not entry["studies"]:
            rows.append((entry["name"], state, *[""] * (len(COLUMNS) - 2)))
        if entry["problem"]:
            notes.append(f"{entry['name']}: {entry['problem']}")
    return TextTable(
        title=f"Searches in {location}",
        header=COLUMNS,
        rows=tuple(rows),
        labels=3,
        notes=tuple(notes) if found else (f"There is no search in {location}.",),
    )
