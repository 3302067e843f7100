"""``holdout export``: a search's chosen model as files."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from search.cli.options import RUNS, Json, Name, Runs
from search.cli.output import rendered, say, show


def export(
    name: Name,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to; a folder that is not there yet.")],
    loss: Annotated[
        str | None,
        typer.Option(
            "--loss", help="Whose; without it, the loss with the highest confirmed mean on validation classes."
        ),
    ] = None,
    runs: Runs = RUNS,
    as_json: Json = False,
) -> None:
    """Write the chosen model with its card, and as torch.export program and ONNX, each checked on real images."""
    from search.plan.stored import stored_search
    from search.stages.export import export as export_model
    from search.stages.export import programs_table

    found = export_model(stored_search(runs, name), loss, to)
    show(
        "" if as_json else rendered([programs_table(found.programs)]),
        {"folder": str(found.folder), "loss": found.loss, "programs": [asdict(entry) for entry in found.programs]},
        as_json,
    )
    say([f"The model of {found.loss} is in {found.folder}; its card is {found.folder / 'README.md'}."])
