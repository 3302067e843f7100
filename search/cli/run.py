"""The commands that do something: run, select, test, sync."""

from pathlib import Path
from typing import Annotated

import typer

from search.cli.compare import render
from search.cli.output import RUNS, Json, Runs, messages, show
from search.config.recipes import read_search
from search.config.search_config import parse_config
from search.plan.checks import make_plan
from search.plan.plan import Plan
from search.plan.resume import refuse_another_split, started_or_resumed
from search.plan.runs import existing_run, stored_config
from search.plan.search import Search, open_search
from search.report.comparison import compare
from search.report.tracked import make_projection, synchronise
from search.stages.pipeline import run_stages
from trainables.mistakes import Mistakes


def run(
    file: Annotated[Path, typer.Argument(metavar="SEARCH.yaml", help="A search file, or a recipe's name.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one key of the file.")
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Start a search, go on with it, extend it, or print the result of a finished one."""
    config = parse_config(read_search(file, settings or []))
    plan = started_or_resumed(config, runs)
    _print_result(_run(plan, plan.config.stages), as_json)


def select(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A search whose trials are done.")],
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Confirm the finalists with fresh seeds and freeze one configuration a loss."""
    search = _opened(name, runs)
    if not search.is_done("search"):
        raise Mistakes(f"The search {name} has trials left; `holdout run` its file first, or ask for fewer trials.")
    _print_result(_run(search.plan, ("select",)), as_json)


def test(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A search whose configurations are chosen.")],
    again: Annotated[
        str | None, typer.Option("--again", metavar="REASON", help="Open the test classes once more; say why.")
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Train the chosen configurations and score them on the held-out classes, once."""
    search = _opened(name, runs)
    if not search.is_done("select"):
        raise Mistakes(f"Nothing is chosen in {name} yet; `holdout select {name}` comes first.")
    if again is not None and not again.strip():
        raise Mistakes("--again needs a reason; say in a sentence why the test classes are opened once more.")
    if search.is_done("test") and again is None:
        _print_result(search, as_json)
        raise Mistakes(
            f"The test classes of {name} were opened before, and the result above is that of the first time; "
            "`--again REASON` opens them once more, and every later table says so."
        )
    _print_result(_run(search.plan, ("test",), again), as_json)


def sync(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A search.")],
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Make MLflow equal to the studies."""
    search = _opened(name, runs)
    count = synchronise(search, make_projection(search.plan))
    show(f"MLflow holds all {count} trials of {name}.", {"name": name, "trials": count}, as_json)


def _run(plan: Plan, stages: tuple[str, ...], reason: str | None = None) -> Search:
    (search,) = run_stages([plan], messages, stages, opener=plan.config.name, reason=reason)
    return search


def _opened(name: str, runs: Path) -> Search:
    folder = existing_run(runs, name)
    plan = make_plan(parse_config(stored_config(folder)), runs, addresses=False)
    refuse_another_split(folder, plan.split.digest)
    return open_search(plan, messages)


def _print_result(search: Search, as_json: bool) -> None:
    summary = search.summary()
    show("" if as_json else render(compare([search.plan.folder], [summary])), summary, as_json)
