"""`holdout trials` and `show`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search.cli.options import RUNS, Json, Name, Runs
from search.cli.output import messages, rendered, show as show_result

if TYPE_CHECKING:
    from rich.console import RenderableType

    from search.plan.stored import TrialRow
    from search.report.text_table import TextTable
    from search.report.trial_page import TrialPage


MOST_ROWS = 500

Loss = Annotated[
    str, typer.Argument(metavar="LOSS", help="A loss, or its later trainings: mpa, mpa@confirm, mpa@final.")
]


def trials(
    name: Name,
    loss: Annotated[str | None, typer.Option("--loss", help="Only this loss's; all losses' without it.")] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            min=0,
            metavar="N",
            help="Of each study only the N trials with the highest values; 0: all of up to 500.",
        ),
    ] = 0,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write them to a file too.")] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """The trials of a search: parameters, value, state, and why each ended."""
    from dataclasses import asdict

    from search.plan.stored import stored_search, trial_rows, trials_csv
    from trainables.files import write_text

    search = stored_search(runs, name)
    tables = {study: trial_rows(search.trials_of(study)) for study in ([loss] if loss else search.losses)}
    if csv:
        write_text(csv, trials_csv(tables))
        messages().print(f"Written to {csv}.", style="dim", highlight=False)
    show_result(
        "" if as_json else rendered([_of_study(f"{name}/{study}", rows, top) for study, rows in tables.items()]),
        {study: [asdict(row) for row in rows] for study, rows in tables.items()},
        as_json,
    )


def show(
    name: Name,
    loss: Loss,
    number: Annotated[int, typer.Argument(metavar="NUMBER", help="The trial's number.")],
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """One trial: parameters, seed, why it ended, its epochs as a curve, its checkpoint and its log."""
    from dataclasses import asdict

    from search.plan.stored import stored_search
    from search.report.trial_page import trial_page

    page = trial_page(stored_search(runs, name), loss, number)
    show_result("" if as_json else _page(page), asdict(page), as_json)


def _of_study(title: str, rows: list["TrialRow"], top: int) -> "TextTable":
    """All rows; of very many, which nobody reads, the best ones and how to get the rest."""
    shown = top or (MOST_ROWS if len(rows) > MOST_ROWS else len(rows))
    if shown >= len(rows):
        return _table(title, rows, () if rows else (f"{title}: no trial yet",))
    best = sorted(rows, key=lambda row: -math.inf if row.value is None else row.value, reverse=True)[:shown]
    return _table(title, best, (f"The {shown:,} best of {len(rows):,} trials; --csv FILE or --json gives all.",))


def _table(title: str, rows: list["TrialRow"], notes: tuple[str, ...]) -> "TextTable":
    from search.plan.stored import parameter_names
    from search.report.text_table import TextTable

    names = parameter_names(rows)
    header = ("trial", "state", "value", "epochs", *names, "outcome")
    return TextTable(
        title=title,
        header=header,
        rows=tuple(_cells(row, names) for row in rows),
        labels=2,
        notes=notes,
        prose=(len(header) - 1,),
    )


def _cells(row: "TrialRow", names: list[str]) -> tuple[str, ...]:
    from search.report.text_table import NOTHING
    from spaces.space import value_text

    values = [value_text(row.params[key]) if key in row.params else "" for key in names]
    value = NOTHING if row.value is None else f"{row.value:.4f}"
    replicate = "" if row.replicate_of is None else f"same as {row.replicate_of}; "
    outcome = f"{replicate}{row.outcome or ''}"
    return str(row.number), row.state.lower(), value, str(row.epochs), *values, outcome


def _page(page: "TrialPage") -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from search.report.formats import parameters

    row = page.row
    facts = Table(box=None, padding=(0, 1), show_header=False)
    facts.add_column(style="dim")
    facts.add_column(overflow="fold")
    for key, text in {
        "state": row.state.lower(),
        "value": None if row.value is None else f"{row.value:.4f} ({page.objective})",
        "parameters": parameters(row.params) or "none",
        "seed": None if row.seed is None else str(row.seed),
        "same as": None if row.replicate_of is None else f"trial {row.replicate_of}, with another seed",
        "outcome": row.outcome,
        "checkpoint": page.checkpoint,
    }.items():
        if text is not None:
            facts.add_row(key, Text(text))
    log = page.log.rstrip() or "no log"
    return Group(Text(f"{page.study} trial {row.number}", style="bold"), facts, Text(), Text(page.curve), Text(log))
