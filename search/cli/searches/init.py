"""``holdout init``: a commented search file for a folder of images."""

from pathlib import Path
from typing import Annotated

import typer

from search.cli.options import Json
from search.cli.output import show


def init(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FOLDER]", help="Images, one sub-folder a class; without it, those that the program draws itself."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file; by default NAME.yaml, here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a search file that fits a folder of images and this machine, with a comment on every section."""
    from dataclasses import asdict

    from search.config.initial.image_facts import dataset_facts, folder_facts
    from search.config.initial.initial_file import (
        initial_text,
        name_for,
        refuse_existing,
        sizes_for,
        this_machine,
        write_initial_file,
    )
    from trainables.data.sets.glyphs import Glyphs

    facts = dataset_facts(Glyphs()) if folder is None else folder_facts(folder)
    path = output or Path(f"{name_for(facts.root)}.yaml")
    refuse_existing(path)
    machine = this_machine()
    write_initial_file(path, initial_text(facts, machine))
    found = "\n".join((*facts.sentences(), machine.sentence))
    sizes = sizes_for(facts, machine)
    record = {"file": str(path), "found": asdict(facts), "machine": asdict(machine), "sizes": asdict(sizes)}
    show(f"{found}\nWritten to {path}; read it, and then:\n\n  holdout run {path}", record, as_json)
