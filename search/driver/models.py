"""A chosen model exported as a folder, with a program that runs without Holdout."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from search.config.search_config import parse_config
from search.plan.runs import stored_split
from search.plan.stored import StoredSearch
from search.report.models import comparison_of, model_to_hand_out
from search.text_table import NOTHING, TextTable, rows_as_markdown
from search.trust import check_code, own_code, trusts_code
from trainables.errors import InvalidInput
from trainables.files import draft_of, remove_dead_drafts_of, write_text
from trainables.inference.model_files import CARD, EmbedderSpec, TrainableSpec

if TYPE_CHECKING:
    from numpy import ndarray

    from trainables.inference.portable import Program

CHECKED = 7
"""Number of images on which the exported program is compared with the model, one by one and as a batch."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The model of ``loss`` in ``folder``, and the result of its export as a program; empty for own trainings."""

    folder: Path
    loss: str
    programs: "tuple[Program, ...]"


def export(stored: StoredSearch, loss: str | None, folder: Path) -> Exported:
    """Write the chosen model of ``loss`` to the new folder ``folder``, completely or not at all.

    Args:
        stored: a search whose final models are trained.
        loss: the loss; None for the recommended model.
        folder: the folder to create.

    Raises:
        InvalidInput: there is no such model, ``folder`` exists, the training images are missing, or the search names
            code that is not allowed.
    """
    if folder.exists():
        raise InvalidInput(f"--to is {str(folder)!r}, which already exists; name a new folder.")
    check_code(stored.folder.path, own_code(stored.config))
    model, comparison = model_to_hand_out(stored, loss), comparison_of(stored)
    images = [] if isinstance(model.spec, TrainableSpec) else _training_images(stored)
    from trainables.inference.embedder import load_model  # imports torch
    from trainables.inference.portable import write_program

    draft = draft_of(folder)
    remove_dead_drafts_of(folder)
    try:
        model.write(draft, comparison)
        programs: tuple[Program, ...] = ()
        if isinstance(model.spec, EmbedderSpec):
            named = own_code(model.spec.model.backbone)  # a checkpoint may name another network than the search file
            embedder = load_model(str(draft), device="cpu", trust_code=trusts_code(stored.folder.path, named))
            programs = (write_program(draft, embedder, images),)
            write_text(draft / CARD, model.card(comparison, rows_as_markdown(programs_table(programs))))
        try:
            draft.rename(folder)
        except OSError as error:
            raise InvalidInput(
                f"--to is {str(folder)!r}, to which the model cannot be moved ({error.strerror or error}); name a new "
                "folder."
            ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Exported(folder=folder, loss=model.loss, programs=programs)


def programs_table(programs: "Sequence[Program]") -> TextTable:
    """Return the exported programs, each with its largest difference from the model or the reason it is missing."""
    return TextTable(
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
    """Return :data:`CHECKED` images: the first of each validation and training class, then the second, and so on."""
    dataset = parse_config(dict(stored.config)).dataset.source
    split, classes = stored_split(stored.folder), dataset.classes()
    of_classes = [classes[name] for name in (*split.validation, *split.train) if name in classes]
    keys = [images[at] for at in range(CHECKED) for images in of_classes if at < len(images)]
    return [dataset.read(key) for key in keys[:CHECKED]]
