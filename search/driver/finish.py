"""Models, report and MLflow runs, which a finished run writes beside its records."""

import logging
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path

from rich.console import Console

from search.driver.notices import say
from search.driver.progress_view import phase
from search.driver.stages import Outcome
from search.driver.synchronise import behind, make_projection, synchronise, try_to_write, where_to_look
from search.plan.stored import StoredSearch
from search.report.models import write_model_folders
from search.tracking import Projection
from trainables.errors import InvalidInput
from trainables.inference.model_files import DESCRIPTION
from trainables.storage import DiskFull

logger = logging.getLogger(__name__)


def write_missing(outcomes: Sequence[Outcome], console: Console, opener: str, killed: Set[str]) -> None:
    """Write what finished searches lack whose driver was killed: the models, the report and their MLflow runs."""
    for outcome in outcomes:
        folder = outcome.search.plan.folder
        if not all((folder.model(loss) / DESCRIPTION).exists() for loss in outcome.search.config.loss_names):
            write_models(outcome)
    if not outcomes[0].search.plan.folder.report.exists():
        draw_search_report(outcomes, console, opener)
    behind_studies = [outcome for outcome in outcomes if outcome.search.name in killed]
    say(console, [_synchronised(outcome, make_projection(outcome.search.plan)) for outcome in behind_studies])


def write_models(outcome: Outcome) -> None:
    """Write the chosen models. Best effort: they are rewritten on demand."""
    folder = outcome.search.plan.folder
    if not folder.test.exists():
        return
    try:
        write_model_folders(StoredSearch(folder), outcome.comparison)
    except (InvalidInput, OSError, DiskFull) as error:
        logger.warning("The models of %s cannot be written: %s", folder.name, error)


def draw_search_report(outcomes: Sequence[Outcome], console: Console, opener: str) -> None:
    """Draw the report of a search; a campaign writes one for all of its searches."""
    if [outcome.search.name for outcome in outcomes] == [opener]:
        from search.report.document import write_search_report

        runs = outcomes[0].search.plan.folder.runs
        draw_report(partial(write_search_report, runs, [opener]), opener, console)


def draw_report(write: Callable[[], Path], name: str, console: Console) -> None:
    """Write the report of the search or campaign ``name``; if that fails, log a warning."""
    with phase(console, "Drawing the report …"):
        try:
            write()
        except Exception as error:  # any error raised by the libraries that draw
            reason = textwrap.shorten(f"{type(error).__name__}: {error}", 200)
            logger.warning("The report was not drawn (%s); retry with `holdout report %s`.", reason, name)


def write_runs(outcomes: Sequence[Outcome], projections: Mapping[str, Projection], console: Console) -> None:
    """Write what each search found to MLflow, and print the addresses of its pages."""
    say(console, [_synchronised(outcome, projections[outcome.search.name]) for outcome in outcomes])


def _synchronised(outcome: Outcome, projection: Projection) -> str:
    """Synchronise MLflow with the studies; return the address of the search's page, or how to retry."""
    if try_to_write(lambda: synchronise(outcome, projection)):
        return where_to_look([outcome.search.plan])
    return behind(outcome.search.name)
