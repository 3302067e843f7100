"""Options and arguments that commands share."""

from pathlib import Path
from typing import Annotated

import typer

from search.trust import ALLOWED

RUNS = Path("runs")


def known_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the searches in the runs folder, for shell completion."""
    runs = Path(context.params.get("runs") or RUNS)
    return sorted(path.parent.name for path in runs.glob(f"{incomplete}*/search.yaml"))


Runs = Annotated[
    Path, typer.Option("--runs", envvar="HOLDOUT_RUNS", file_okay=False, help="The folder with all searches.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a search.", autocompletion=known_names)]
AnyName = Annotated[
    str, typer.Argument(metavar="NAME", help="The name of a search or campaign.", autocompletion=known_names)
]
Names = Annotated[
    list[str],
    typer.Argument(metavar="NAME", help="Searches (`report`, `sync`: or campaigns).", autocompletion=known_names),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY.PATH=VALUE", help="Set a key of the file; may be repeated.")
]
SearchFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A search or campaign file, or the name of a recipe or campaign.")
]
AllowFailed = Annotated[
    bool, typer.Option("--allow-failed", help="Choose and test without the losses that failed in every trial.")
]
Output = Annotated[
    list[Path] | None,
    typer.Option("--output", metavar="FILE", help="Also write the table to a .csv, .md or .tex file; may be repeated."),
]


def _allow_code(trusted: bool) -> bool:
    """Act on the option (see search/trust.py); most commands do not read its value."""
    if trusted:
        ALLOWED.add(None)
    return trusted


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        callback=_allow_code,
        help="Import the code and contact the addresses that somebody else's files name. Code can do all that you can.",
    ),
]

# Shared by the commands for models.

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="The folder or checkpoint of a model: a path, a URL or models:/NAME@ALIAS."),
]
Images = Annotated[
    list[Path],
    typer.Argument(metavar="IMAGES", help="Images and folders of them; for a model of features, files of embeddings."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="The device, such as cpu or cuda:1; by default a GPU if there is one.")
]
BatchSize = Annotated[
    int | None, typer.Option("--batch-size", help="The batch size; by default that of the model's test.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Skip images that cannot be read, and list them.")
]
