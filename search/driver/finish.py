"""Summary, models, report and MLflow runs, written beside a search's records; and a model exported as a program."""

import logging
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from search.config.search_config import parse_config
from search.driver.progress_view import phase, say
from search.driver.synchronise import behind, make_projection, synchronise, try_to_write
from search.records.records import Records
from search.records.writable import WritableRecords
from search.results.comparison import comparison_of
from search.results.summarise import summarise, written_before
from search.results.summary import Summary
from search.show.model_cards import model_to_hand_out, write_model_folders
from search.text_table import NOTHING, TextTable, rows_as_markdown, writing
from search.tracking import Projection
from search.trust import check_trusted, is_trusted, own_code
from trainables.common.errors import InvalidInput
from trainables.common.files import draft_of, json_text, remove_dead_drafts, write_text
from trainables.common.storage import DiskFull
from trainables.inference.model_files import CARD, DESCRIPTION, EmbedderSpec, TrainableSpec

if TYPE_CHECKING:
    from numpy import ndarray

    from trainables.inference.portable import Program

logger = logging.getLogger(__name__)


def write_summary(search: Records) -> Summary:
    """Derive the summary from the search's records and write ``summary.json`` if it changed."""
    path = search.folder.summary
    summary = summarise(search, written_before(path))
    text = json_text(summary.with_digest())
    if not path.exists() or path.read_bytes() != text.encode():
        write_text(path, text)
    return summary


def write_missing(searches: Sequence[WritableRecords], console: Console, opener: str, killed: Set[str]) -> None:
    """Write what finished searches lack whose driver was killed: the models, the report and their MLflow runs."""
    for search in searches:
        if not all((search.folder.model(loss) / DESCRIPTION).exists() for loss in search.losses):
            write_models(search)
    if not searches[0].folder.report.exists():
        draw_search_report(searches, console, opener)
    behind_studies = [search for search in searches if search.name in killed]
    write_runs(behind_studies, {search.name: make_projection(search.plan) for search in behind_studies}, console)


def write_models(search: Records) -> None:
    """Write the chosen models. Best effort: they are rewritten on demand."""
    if not search.folder.test.exists():
        return
    try:
        write_model_folders(search)
    except (InvalidInput, OSError, DiskFull) as error:
        logger.warning("The models of %s cannot be written: %s", search.name, error)


def draw_search_report(searches: Sequence[Records], console: Console, opener: str) -> None:
    """Draw the report of a search; a campaign writes one for all of its searches."""
    if [search.name for search in searches] == [opener]:
        from search.show.document import write_search_report

        draw_report(partial(write_search_report, searches), opener, console)


def draw_report(write: Callable[[], Path], name: str, console: Console) -> None:
    """Write the report of the search or campaign ``name``; if that fails, log a warning."""
    with phase(console, "Drawing the report …"):
        try:
            write()
        except Exception as error:  # any error raised by the libraries that draw
            reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
            logger.warning("The report was not drawn (%s); retry with `holdout report %s`.", reason, name)


def write_runs(searches: Sequence[Records], projections: Mapping[str, Projection], console: Console) -> None:
    """Write what each search found to MLflow; say of which that failed."""
    for search in searches:
        if not try_to_write(partial(synchronise, search, projections[search.name])):
            say(console, [behind(search.name)])


# The export of a model.

CHECKED = 7
"""Number of images on which the exported program is compared with the model, one by one and as a batch."""


def export(search: Records, loss: str | None, folder: Path) -> "tuple[str, tuple[Program, ...]]":
    """Write the chosen model of ``loss`` (None: the recommended one) to a new ``folder``, completely or not at all.

    Return the loss, and the results of the export as a program; none for a training of the user's own.
    """
    if folder.exists():
        raise InvalidInput(f"--to is {str(folder)!r}, which already exists; name a new folder.")
    check_trusted(search.folder.path, own_code(search.content))
    model, comparison = model_to_hand_out(search, loss), comparison_of(search)
    images = [] if isinstance(model.spec, TrainableSpec) else _training_images(search)
    from trainables.inference.embedder import load_model  # imports torch
    from trainables.inference.portable import write_program

    draft = draft_of(folder)
    remove_dead_drafts(folder.parent, folder)
    try:
        model.write(draft, comparison)
        programs: tuple[Program, ...] = ()
        if isinstance(model.spec, EmbedderSpec):
            named = own_code(model.spec.model.backbone)  # a checkpoint may name another network than the search file
            embedder = load_model(str(draft), device="cpu", trust_code=is_trusted(search.folder.path, named))
            programs = (write_program(draft, embedder, images),)
            write_text(draft / CARD, model.card(comparison, rows_as_markdown(programs_table(programs))))
        with writing("--to", folder):
            draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return model.loss, programs


def programs_table(programs: "Sequence[Program]") -> TextTable:
    """Return the exported programs, each with its largest difference from the model or the reason it is missing."""
    return TextTable(
        header=("form", "file", f"largest difference on {CHECKED} training images"),
        rows=tuple(
            (each.form, NOTHING if each.reason else each.file, each.reason or f"{each.difference:.1e}")
            for each in programs
        ),
        labels=2,
        prose=(2,),
    )


def _training_images(search: Records) -> "list[ndarray]":
    """Return :data:`CHECKED` images: the first of each validation and training class, then the second, and so on."""
    dataset = parse_config(dict(search.content)).dataset.source
    split, classes = search.split, dataset.classes()
    of_classes = [classes[name] for name in (*split.validation, *split.train) if name in classes]
    keys = [images[at] for at in range(CHECKED) for images in of_classes if at < len(images)]
    return [dataset.read(key) for key in keys[:CHECKED]]
