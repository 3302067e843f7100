"""Earlier commands that other programs rely on, each another command with an option; `--help` does not list them."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from search.cli import cluster, run, trials
from search.cli.options import RUNS, Json, Name, Runs, Trust, TrustSearch


def register(
    name: Name,
    model_name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="The registered model's name.")] = None,
    runs: Runs = RUNS,
    trust: Trust = None,
    trust_code: TrustSearch = False,
    as_json: Json = False,
) -> None:
    """Register the chosen models in MLflow, as `holdout sync NAME --register`."""
    run.sync([name], register=True, model_name=model_name, runs=runs, as_json=as_json)


def list_jobs(runs: cluster.OnlyRuns = None, address: cluster.Address = cluster.ADDRESS, as_json: Json = False) -> None:
    """List the jobs on a cluster, as `holdout status --jobs`."""
    cluster.show_jobs(None, address, as_json, runs)


def wait(
    name: Name,
    runs: cluster.OnlyRuns = None,
    address: cluster.Address = cluster.ADDRESS,
    as_json: Json = False,
) -> None:
    """Wait until a search on a cluster ends, as `holdout logs NAME --follow`."""
    cluster.logs(name, follow=True, runs=runs, address=address, as_json=as_json)


ALIASES: dict[str, Callable[..., Any]] = {
    "campaign": run.run, "list": list_jobs, "register": register, "show": trials.trials, "wait": wait
}  # fmt: skip
