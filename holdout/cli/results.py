"""Commands that read results: `trials`, `compare`, `report`, `verify`, `serve`; and `doctor`."""

import math
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from holdout.cli.options import RUNS, AnyName, Json, Name, Names, Output, Runs, Settings, TrustCode
from holdout.cli.output import Tables, aligned, messages, say, show, show_line, shown_checks
from search import records  # whose modules load on first use
from search.driver.progress_view import phase
from search.packages import check_extra
from search.text_table import TextTable, refuse_unknown, write_output
from trainables.common.errors import Failure, InvalidInput, counted, listed
from trainables.common.files import write_text
from trainables.metrics import metric_name, score_text

if TYPE_CHECKING:
    from search.driver.verify import Check
    from search.show.trial_page import TrialPage


MOST_ROWS = 500
"""The maximum number of trials in a table."""


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
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write all trials to a CSV file.")] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """List the trials of a search, with params, value, state and why they ended; or show one of them."""
    search = records.stored_search(runs, name)
    if loss is not None and number is not None:
        if csv:
            raise InvalidInput("--csv is for lists of trials; leave out the number of the trial.")
        from search.show.trial_page import trial_page

        page = trial_page(search, loss, number)
        show(asdict(page), as_json, lambda: _page(page))
        return
    tables = {study: records.trial_rows(search.trials_of(study)) for study in ([loss] if loss else search.losses)}
    if csv:
        write_text(csv, records.trials_csv(tables))
        say([f"Wrote {csv}."], "dim")
    show(
        {study: [asdict(row) for row in rows] for study, rows in tables.items()},
        as_json,
        lambda: Tables([_of_study(search, study, rows) for study, rows in tables.items()]),
    )


def _of_study(search: "records.Records", study: str, rows: "list[records.TrialRow]") -> TextTable:
    """Return the table of a study: all rows, or the best if there are more than :data:`MOST_ROWS`."""
    title, retried = f"{search.name}/{study}", search.attributes(*search.study_of(study)).get("retried", ())
    notes = [] if rows else [f"{title}: no trial yet"]
    if retried:
        notes.append(f"{title} began anew after {counted(len(retried), 'trial')} failed without a value: {retried[0]}")
    if len(rows) > MOST_ROWS:
        notes.append(f"The best {MOST_ROWS:,} of {len(rows):,} trials; --csv FILE or --json gives all.")
        rows = sorted(rows, key=lambda row: -math.inf if row.value is None else row.value, reverse=True)[:MOST_ROWS]
    names, objective = records.param_names(rows), metric_name(search.content["search"]["objective"])
    header = ("trial", "state", objective, "epochs", *names, "outcome")
    return TextTable(
        title=title,
        header=header,
        rows=tuple(_cells(row, objective, names) for row in rows),
        labels=2,
        notes=tuple(notes),
        prose=(len(header) - 1,),
    )


def _cells(row: "records.TrialRow", objective: str, names: list[str]) -> tuple[str, ...]:
    from spaces.space import value_text

    values = [value_text(row.params[key]) if key in row.params else "" for key in names]
    replicate = "" if row.replicate_of is None else f"same as {row.replicate_of}; "
    facts = (str(row.number), row.state.lower(), score_text(objective, row.value), str(row.epochs))
    return *facts, *values, f"{replicate}{row.outcome or ''}"


def _page(page: "TrialPage") -> RenderableType:
    from search.results.rows import parameters

    row = page.row
    facts = {
        "state": row.state.lower(),
        "value": None if row.value is None else f"{score_text(page.objective, row.value)} ({page.objective})",
        "params": parameters(row.params) or "none",
        "seed": None if row.seed is None else str(row.seed),
        "same as": None if row.replicate_of is None else f"trial {row.replicate_of}, with another seed",
        "outcome": row.outcome,
        "checkpoint": page.checkpoint,
    }
    known = aligned((Text(key, style="dim"), text) for key, text in facts.items() if text is not None)
    log = page.log.rstrip() or "no log"
    return Group(Text(f"{page.study} trial {row.number}", style="bold"), known, Text(), Text(page.curve), Text(log))


def compare(
    names: Names,
    output: Output = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            metavar="POINTS",
            help="Call two rows the same if the interval of their difference is within this margin; by default that "
            "of the search file (final.within), which was frozen before the test.",
        ),
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Compare the losses of searches on the same split, and show which of them differ."""
    from search.results.comparison import compare as compare_searches
    from search.show.comparison_tables import as_csv, paper_tables, text_tables

    refuse_unknown(output or [])
    searches = [records.stored_search(runs, name) for name in dict.fromkeys(names)]
    comparison = compare_searches(searches, within=within)
    tables = text_tables(comparison)
    for path in output or []:
        write_output(path, as_csv(comparison), tables, paper_tables(comparison))
    show(comparison.model_dump(mode="json"), as_json, lambda: Tables(tables))
    if len(searches) > 1 and not as_json:
        page = records.mlflow_page([search.folder for search in searches])
        say([f"MLflow: {page or f'`holdout sync {shlex.join(names)}` writes a page that compares them'}"], "dim")
    if comparison.changed:  # the first line of every output
        raise typer.Exit(1)


def report(
    names: Names,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="The file to write; by default the search's report.html."),
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
) -> None:
    """Write a report on a search, several of one split, or a campaign, as one HTML file; it does not open the test."""
    from search.show.campaigns import write_report

    show_line(str(write_report(runs, list(dict.fromkeys(names)), output)))


def verify(
    name: AnyName,
    retrain: Annotated[
        str | None,
        typer.Option("--retrain", metavar="LOSS:NUMBER", help="Also retrain a trial, such as mpa:3 or mpa@final:0."),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option("--images", exists=True, file_okay=False, help="Where the images, or their file, are now."),
    ] = None,
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Recompute all results from the records, and report what differs from the stored ones."""
    found: list[Check] = []
    refused = None
    with phase(messages(), f"Recomputing {name} …"):
        try:
            found.extend(_checks(runs, name, retrain, images))
        except InvalidInput as error:
            if as_json or not found:
                raise
            refused = error  # the checks before it are shown
    problem, missing = found[-1].problem, [check.what for check in found if not check.is_there]
    if as_json:
        checks = [check._asdict() for check in found]
        show({"name": name, "ok": problem is None, "missing": missing, "checks": checks}, as_json, str)
    else:
        for check in found:
            if not check.problem:
                show_line(f"{'ok ' if check.is_there else '-- '} {check.what}")
    if refused:
        raise refused
    if problem:
        raise Failure(f"FAILED: {problem}")
    if not as_json:
        verdict = f"Verified, but for {listed([*dict.fromkeys(missing)])}" if missing else "Verified"
        show_line(f"{verdict}. Numbers in report.html and model cards are not compared.")


def _checks(runs: Path, name: str, retrain: str | None, images: Path | None) -> "Iterator[Check]":
    folder = records.CampaignFolder(runs, name, images)
    if folder.is_campaign:
        from search.driver.campaigns import verify_campaign

        if retrain:
            raise InvalidInput(f"--retrain: {name} is a campaign; name one of its searches (`holdout status {name}`).")
        for search in folder.searches():
            _refuse_running(records.RunFolder(runs, search))
        yield from verify_campaign(folder)
        return
    from search.driver.verify import check_retrained, trial_to_retrain, verify as verify_search

    stored = records.Records(replace(records.stored_search(runs, name).folder, images=images))
    _refuse_running(stored.folder)
    again = trial_to_retrain(stored, retrain) if retrain else None
    for check in verify_search(stored.folder):
        yield check
    if again and not check.problem:
        yield from check_retrained(stored, *again)


def _refuse_running(run: "records.RunFolder") -> None:
    """Raise :class:`InvalidInput` if the search is running: its records would change while they are read."""
    if run.path.exists() and (driver := run.driver()):
        raise InvalidInput(f"{run.name} is being run by {driver}; verify it when that has ended.")


def serve(
    runs: Runs = RUNS,
    trust_code: TrustCode = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8650,
) -> None:
    """Serve a live page of all searches and campaigns in the runs folder to this machine. It is read-only."""
    check_extra("The live page", ["fastapi", "uvicorn"])
    from search.show.live import serve as serve_page

    serve_page(runs, port, show_line)


def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="SEARCH.yaml", help="A search file, or the name of a recipe.")
    ] = None,
    settings: Settings = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Check this machine, and whether a search can run on it; exit code 1 if something is missing."""
    if not as_json:
        say([f"Checking this machine{' and the search' if file else ''}, which takes some seconds …"], "dim")
    from search.config.recipes import read_search
    from search.config.search_config import validate_config
    from search.driver.doctor import examine

    found = validate_config(read_search(file, settings or [])) if file else None
    config, fits_batch = (found.result(), not found.gives("training.batch_size")) if found else (None, False)
    results = shown_checks(examine(config, runs, fits_batch=fits_batch), as_json)
    if as_json:
        show([asdict(result) for result in results], as_json, str)
    if any(result.state == "failed" for result in results):
        raise typer.Exit(1)
