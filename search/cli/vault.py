"""The command of a vault's owner."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from search.cli.output import say
from trainables.common.errors import Failure, InvalidInput


def vault(
    action: Annotated[
        Literal["make", "answer", "verify"],
        typer.Argument(help="make: a vault of the data set DATA; answer: one request; verify: all openings again."),
    ],
    place: Annotated[Path, typer.Argument(metavar="DATA|DIR", help="The data set to divide, or the vault's folder.")],
    to: Annotated[Path | None, typer.Option("--to", metavar="DIR", help="The folder of the new vault.")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", metavar="NAME", help="The data set in the folder DATA, such as cub200.")
    ] = None,
    openings: Annotated[int, typer.Option("--openings", min=1, help="How often the test may be opened.")] = 1,
    labels_only: Annotated[
        bool, typer.Option("--labels-only", help="Hand out the test items without labels, and score embeddings.")
    ] = False,
    class_values: Annotated[
        bool, typer.Option("--class-values/--no-class-values", help="Answer values by class, which intervals need.")
    ] = True,
    seed: Annotated[int, typer.Option("--seed", help="The split.seed of the searches.")] = 0,
) -> None:
    """Hold the test classes of a data set for others, and score their frozen models once."""
    if action == "make":
        _make(place, to, dataset, openings, labels_only, class_values, seed)
    elif action == "answer":
        from search.vault.answer import ERRORS, answer

        reply = os.fdopen(os.dup(1), "wb")
        with suppress(OSError), (place / ERRORS).open("ab") as file:  # what a library prints may tell of test items
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        with reply:
            answer(place.resolve(), sys.stdin.buffer, reply)
    else:
        from search.vault.answer import problems_of

        problems = list(problems_of(place.resolve()))
        if problems:
            raise Failure("\n".join(problems))
        say(
            ["Verified: every opening has its line and its answer, and its models give the same scores again."], "green"
        )


def _make(
    data: Path, to: Path | None, name: str | None, openings: int, labels_only: bool, class_values: bool, seed: int
) -> None:
    from search.config.image_facts import dataset_at
    from search.config.parts import build_dataset
    from search.vault.held import LISTED, VECTORS_FILE, Policy, make_vault

    if to is None:
        raise InvalidInput("--to is missing: name the folder of the new vault.")
    if not data.exists():
        raise InvalidInput(f"{data} does not exist; give a folder of images, a CSV file or a file of embeddings.")
    source = dataset_at(data) if name is None else build_dataset(name, {"root": str(data)})
    to = to.resolve()
    policy = Policy(openings=openings, by_class=class_values, labels_only=labels_only)
    key = make_vault(source, to, policy, seed=seed)
    listed = LISTED if source.features() is None else VECTORS_FILE
    say(
        [
            f"The vault {key[:12]} is in {to}, which only you can read. Publish its key {key}.",
            f"Hand out {to}-training: `holdout init {to}-training/{listed}` writes the search file.",
            *([f"Hand out {to}-items, too: the test items without labels (final.vault_items)."] if labels_only else []),
            f"Nobody who searches may read {data}, which has the test classes, too.",
        ],
        "green",
    )
