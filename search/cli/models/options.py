"""Options and arguments that the commands on models share."""

from pathlib import Path
from typing import Annotated

import typer

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
