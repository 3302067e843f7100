"""The command `trials`: the trials of a search, or one of them."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from search.cli.options import RUNS, Json, Name, Runs, TrustCode
from search.cli.output import Tables, say, show
from search.text_table import TextTable
from trainables.common.errors import InvalidInput, counted
from trainables.common.files import write_text
from trainables.metrics import metric_name, score_text

if TYPE_CHECKING:
    from search.plan.records import Records
    from search.plan.status import TrialRow
    from search.show.trial_page import TrialPage


MOST_ROWS = 500
"""The maximum number of trials in a table without ``--top``."""


def trials(
    name: Name,
    loss: Annotated[
        str | None,
        typer.Argument(
            metavar="LOSS", help="Only this loss, or its trainings of a later stage: mpa@confirm, mpa@final."
        ),
    ] = None,
    number: Annotated[
        int | None, typer.Argument(metavar="NUMBER", help="Show this trial: its params, curve, checkpoint and log.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top", min=0, metavar="N", help="List only the N best trials of each study; 0: all, at most 500."
        ),
    ] = 0,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write all trials to a CSV file.")] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """List the trials of a search, with params, value, state and why they ended; or show one of them."""
    from search.plan.records import stored_search
    from search.plan.status import trial_rows, trials_csv

    search = stored_search(runs, name)
    if loss is not None and number is not None:
        if top or csv:
            raise InvalidInput("--top and --csv are for lists of trials; leave out the number of the trial.")
        from search.show.trial_page import trial_page

        page = trial_page(search, loss, number)
        show(asdict(page), as_json, lambda: _page(page))
        return
    tables = {study: trial_rows(search.trials_of(study)) for study in ([loss] if loss else search.losses)}
    if csv:
        write_text(csv, trials_csv(tables))
        say([f"Wrote {csv}."], "dim")
    show(
        {study: [asdict(row) for row in rows] for study, rows in tables.items()},
        as_json,
        lambda: Tables([_of_study(search, study, rows, top) for study, rows in tables.items()]),
    )


def _of_study(search: "Records", study: str, rows: list["TrialRow"], top: int) -> TextTable:
    """Return the table of a study: all rows, or the best if there are more than :data:`MOST_ROWS`."""
    from search.plan.status import param_names

    title, retried = f"{search.name}/{study}", search.attributes(*search.study_of(study)).get("retried", ())
    notes = [] if rows else [f"{title}: no trial yet"]
    if retried:
        notes.append(f"{title} began anew after {counted(len(retried), 'trial')} failed without a value: {retried[0]}")
    if len(rows) > (most := top or MOST_ROWS):
        notes.append(f"The best {most:,} of {len(rows):,} trials; --csv FILE or --json gives all.")
        rows = sorted(rows, key=lambda row: -math.inf if row.value is None else row.value, reverse=True)[:most]
    names, objective = param_names(rows), metric_name(search.content["search"]["objective"])
    header = ("trial", "state", objective, "epochs", *names, "outcome")
    return TextTable(
        title=title,
        header=header,
        rows=tuple(_cells(row, objective, names) for row in rows),
        labels=2,
        notes=tuple(notes),
        prose=(len(header) - 1,),
    )


def _cells(row: "TrialRow", objective: str, names: list[str]) -> tuple[str, ...]:
    from spaces.space import value_text

    values = [value_text(row.params[key]) if key in row.params else "" for key in names]
    value = score_text(objective, row.value)
    replicate = "" if row.replicate_of is None else f"same as {row.replicate_of}; "
    outcome = f"{replicate}{row.outcome or ''}"
    return str(row.number), row.state.lower(), value, str(row.epochs), *values, outcome


def _page(page: "TrialPage") -> RenderableType:
    from search.results.formats import parameters

    row = page.row
    facts = Table(box=None, padding=(0, 1), show_header=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for key, text in {
        "state": row.state.lower(),
        "value": None if row.value is None else f"{score_text(page.objective, row.value)} ({page.objective})",
        "params": parameters(row.params) or "none",
        "seed": None if row.seed is None else str(row.seed),
        "same as": None if row.replicate_of is None else f"trial {row.replicate_of}, with another seed",
        "outcome": row.outcome,
        "checkpoint": page.checkpoint,
    }.items():
        if text is not None:
            facts.add_row(key, Text(text))
    log = page.log.rstrip() or "no log"
    return Group(Text(f"{page.study} trial {row.number}", style="bold"), facts, Text(), Text(page.curve), Text(log))
