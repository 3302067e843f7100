"""A chosen model exported as a folder, with programs that run without Holdout."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search.config.search_config import parse_config
from search.plan.runs import stored_split
from search.plan.stored import StoredSearch
from search.report.models import comparison_of, model_to_hand_out
from search.report.text_table import NOTHING, TextTable, rows_as_markdown
from trainables.files import write_text
from trainables.inference.model_files import CARD
from trainables.mistakes import Mistakes

if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from numpy import ndarray

    from trainables.inference.portable import Program


CHECKED = 7
"""So many images the further forms are checked on, alone and at once."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What lies in ``folder``: the model of ``loss``, and what came of the further forms of its network."""

    folder: Path
    loss: str
    programs: "tuple[Program, ...]"


def export(stored: StoredSearch, loss: str | None, folder: Path) -> Exported:
    """Write the chosen model of ``loss`` into the new folder ``folder``, whole or not at all.

    Args:
        stored: a search whose models for the test are trained.
        loss: without one, that with the highest confirmed mean on the validation classes.
        folder: where to.

    Raises:
        Mistakes: there is no such model, or ``folder`` is there already, or the training images are not.
    """
    if folder.exists():
        raise Mistakes(f"--to is {str(folder)!r}, which is there already; give a folder that is not.")
    model, comparison = model_to_hand_out(stored, loss), comparison_of(stored)
    images = _training_images(stored)
    from trainables.inference.embedder import load_model  # imports torch
    from trainables.inference.portable import write_programs

    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        model.write(draft, comparison)
        embedder = load_model(str(draft), device="cpu", trust_code=True)
        programs = write_programs(draft, embedder, images)
        write_text(draft / CARD, model.card(comparison, rows_as_markdown(programs_table(programs))))
        try:
            draft.rename(folder)
        except OSError as error:
            raise Mistakes(
                f"--to is {str(folder)!r}, where the model cannot be put ({error.strerror or error}); give a folder "
                "that is not there."
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Exported(folder=folder, loss=model.loss, programs=programs)


def programs_table(programs: "Sequence[Program]") -> TextTable:
    """The further forms, with the largest difference from the original or the reason why there is none."""
    return TextTable(
        title="",
        header=("form", "file", f"largest difference on {CHECKED} training images"),
        rows=tuple(
            (program.form, NOTHING, program.reason)
            if program.reason
            else (program.form, program.file, f"{program.difference:.1e}")
            for program in programs
        ),
        labels=2,
        prose=(2,),
    )


def _training_images(stored: StoredSearch) -> "list[ndarray]":
    """One image of each of the first classes that validate or train, and then a second one, and so on."""
    dataset = parse_config(dict(stored.config)).dataset.source
    split, classes = stored_split(stored.folder), dataset.classes()
    of_classes = [classes[name] for name in (*split.validation, *split.train) if name in classes]
    keys = [images[at] for at in range(CHECKED) for images in of_classes if at < len(images)]
    return [dataset.read(key) for key in keys[:CHECKED]]
