"""One opening of a test set, and what several come to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from search.selection.openings.opened_images import OpenedImages


@dataclass(frozen=True, kw_only=True)
class Opening:
    """One opening of a test set: whose, when and why.

    ``test_digest`` is that of the classes' names, and ``images`` what they turned out to hold: None until they were
    read. ``search`` is who opened, a search or a campaign; ``selections`` maps each search that was scored to the
    digest of its frozen selection, and ``configurations`` to how many of its configurations were scored.
    """

    id: str
    test_digest: str
    search: str
    selections: Mapping[str, str]
    configurations: Mapping[str, int]
    time: str
    reason: str
    images: OpenedImages | None = None


def count_openings(openings: Iterable[Opening]) -> str:
    """How many openings there are, by how many searches, of how many configurations.

    A search is its frozen selection, whatever it is called; to score it once more shows no further configurations.
    """
    found = list(openings)
    scored = {digest: entry.configurations.get(name, 0) for entry in found for name, digest in entry.selections.items()}
    return ", ".join(
        (
            f"{_counted(len(found), 'opening')} by {_counted(len(scored), 'search', 'es')}",
            f"{_counted(sum(scored.values()), 'configuration')} scored",
        )
    )


def _counted(count: int, what: str, plural: str = "s") -> str:
    return f"{count} {what}{plural * (count != 1)}"
