"""How to do it again: the commands, the search file, the digests, the seeds, and the versions."""

from collections.abc import Sequence
from pathlib import Path

from search import __version__
from search.pages.figure import Section
from search.plan.runs import stored_split
from search.plan.stored import StoredSearch
from search.report.tables.text_table import TextTable
from search.selection.selection import Selection


def again(searches: Sequence[StoredSearch], campaign: Path | None = None) -> Section:
    """The commands that make, continue and check these searches, and what identifies them.

    ``campaign`` is the campaign file that they belong to.
    """
    names = " ".join(search.name for search in searches)
    files = [search.folder.config for search in searches] if campaign is None else [campaign]
    checked = campaign.parent.name if campaign else names
    return Section(
        name="again",
        title="To do it again",
        sentences=(
            f"Written by Holdout {__version__}, which stores with each search all it was asked for: its file is below.",
            f"`holdout verify {checked}` recomputes everything from the records; "
            + (f"`holdout campaign {campaign}`" if campaign else f"`holdout compare {names}`")
            + " prints the tables.",
        ),
        tables=(
            TextTable(
                title="What identifies the searches",
                header=("search", "command", "split", "frozen choice", "seed"),
                rows=tuple(_row(search) for search in searches),
                labels=1,
                notes=(),
            ),
        ),
        files=tuple((str(file.relative_to(file.parents[1])), file.read_text()) for file in files),
    )


def _row(search: StoredSearch) -> tuple[str, ...]:
    selection = search.folder.selection
    return (
        search.name,
        f"holdout run {search.folder.config}",
        stored_split(search.folder).digest[:12],
        Selection.load(selection).digest[:12] if selection.exists() else "not made yet",
        str(search.config["search"]["seed"]),
    )
