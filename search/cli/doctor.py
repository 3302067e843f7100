"""``holdout doctor``: what this machine can do."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from search.cli.output import RUNS, Json, Runs, show
from search.cluster.doctor import CheckResult, examine
from search.config.recipes import read_search
from search.config.search_config import parse_config

STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}


def doctor(
    file: Annotated[
        Path | None, typer.Argument(metavar="[SEARCH.yaml]", help="A search file, or a recipe's name.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one key of the file.")
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Look at this machine, and at what a search would need; exit code 1 where something is missing."""
    config = parse_config(read_search(file, settings or [])) if file else None
    findings = list(examine(config, runs))
    show(_table(findings), [asdict(finding) for finding in findings], as_json)
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(1)


def _table(findings: list[CheckResult]) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for finding in findings:
        said = f"{finding.found}. {finding.mend}" if finding.mend else finding.found
        table.add_row(finding.check, Text(finding.state, style=STYLES[finding.state]), Text(said))
    return table
