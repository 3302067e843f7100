"""The command compare, for searches of one split."""

from typing import Annotated

import typer
from rich.console import RenderableType

from search.cli.output import RUNS, Json, Output, Runs, rendered, show
from search.plan.runs import RunFolder, existing_run
from search.report.comparison import compare as compare_searches
from search.report.results.comparison import Comparison
from search.report.results.summary import Summary
from search.report.tables.csv_records import as_csv
from search.report.tables.output import refuse_unknown, write_output
from search.report.tables.text_tables import text_tables
from trainables.mistakes import Mistakes


def compare(
    names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Searches of one split.")],
    output: Output = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """The losses of searches beside each other, and which of them differ."""
    refuse_unknown(output or [])
    folders = [existing_run(runs, name) for name in dict.fromkeys(names)]
    comparison = compare_searches(folders, [_summary(folder) for folder in folders])
    for path in output or []:
        write_output(path, as_csv(comparison), text_tables(comparison))
    show(render(comparison), comparison.model_dump(mode="json"), as_json)


def _summary(folder: RunFolder) -> Summary:
    if not folder.summary.exists():
        raise Mistakes(
            f"The search {folder.name} has no result yet; `holdout status {folder.name}` says how far it is."
        )
    return Summary.load(folder.summary)


def render(comparison: Comparison) -> RenderableType:
    """A comparison for a terminal."""
    return rendered(text_tables(comparison))
