"""``holdout register``: a search's chosen models in MLflow's registry."""

from contextlib import closing
from dataclasses import asdict
from typing import Annotated

import typer

from search.cli.options import RUNS, Json, Name, Runs
from search.cli.output import show


def register(
    name: Name,
    model_name: Annotated[
        str | None,
        typer.Option("--as", metavar="MODEL_NAME", help="The registered model's name; by default the search's."),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Register the chosen model of each loss in MLflow, with an alias on the best one."""
    from search.cluster.driver_lock import hold
    from search.config.names import plain_name
    from search.plan.resume import reopened
    from search.plan.search import open_search
    from search.stages.outcome import recorded_outcome
    from search.stages.synchronise import make_projection
    from search.stages.synchronise import register as register_models
    from trainables.mistakes import Mistakes

    try:
        wanted = name if model_name is None else plain_name(model_name)
    except ValueError:
        raise Mistakes(
            f"--as is {model_name!r}; a registered model's name has letters, digits, '.', '_' and '-', and begins with "
            "a letter or digit."
        ) from None
    plan = reopened(runs, name)
    with hold([plan]), closing(open_search(plan)) as search:
        found = register_models(recorded_outcome(search), make_projection(search.plan), wanted)
    versions = ", ".join(f"{loss} is version {version}" for loss, version in found.versions.items())
    show(
        f"models:/{found.name}@{found.alias} is the model of {found.best}; of {found.name}, {versions}.",
        asdict(found),
        as_json,
    )
