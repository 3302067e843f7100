"""Options and arguments that commands share."""

from pathlib import Path
from typing import Annotated

import typer

# Options and arguments that several commands share.

RUNS = Path("runs")


def known_names(context: typer.Context, incomplete: str) -> list[str]:
    """The searches of the runs folder, for a shell that completes a name."""
    runs = Path(context.params.get("runs") or RUNS)
    return sorted(path.parent.name for path in runs.glob(f"{incomplete}*/search.yaml"))


Runs = Annotated[
    Path, typer.Option("--runs", envvar="HOLDOUT_RUNS", file_okay=False, help="The folder of all searches.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A search.", autocompletion=known_names)]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Searches.", autocompletion=known_names)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set one key of the file; can be repeated.")
]
SearchFile = Annotated[Path, typer.Argument(metavar="SEARCH.yaml", help="A search file, or a recipe's name.")]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", metavar="FILE", help="Write the same to a .csv, .md or .tex file; can be repeated."),
]


# Options and arguments that the commands on models share.

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model's folder or checkpoint, as a path, a URL or models:/NAME@ALIAS."),
]
Images = Annotated[list[Path], typer.Argument(metavar="IMAGES…", help="Images, and folders of them.")]
Device = Annotated[
    str | None, typer.Option("--device", help="Where to compute, such as cpu or cuda:1; a GPU where there is one.")
]
BatchSize = Annotated[int | None, typer.Option("--batch-size", help="So many images at once; as in the model's test.")]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read, and name them.")
]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Import and run the code of a network of one's own that the model names.")
]
