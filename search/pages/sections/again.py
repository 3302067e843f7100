"""How to do it again: the commands, the search file, the digests, the seeds, and the versions."""

from collections.abc import Sequence

from search import __version__
from search.pages.figure import Section
from search.plan.runs import stored_split
from search.plan.stored import StoredSearch
from search.report.tables.text_table import TextTable
from search.selection.selection import Selection


def again(searches: Sequence[StoredSearch]) -> Section:
    """The commands that make, continue and check these searches, and what identifies them."""
    names = " ".join(search.name for search in searches)
    return Section(
        name="again",
        title="To do it again",
        sentences=(
            f"Written by Holdout {__version__}, which stores with each search all it was asked for: its file is below.",
            f"`holdout verify {searches[0].name}` recomputes everything from the records; `holdout compare {names}` "
            "prints the tables.",
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
        files=tuple((f"{search.name}/search.yaml", search.folder.config.read_text()) for search in searches),
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
