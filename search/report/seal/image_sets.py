"""Which test images a search was scored on, and how often these were opened."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from search.plan.runs import RunFolder, stored_split
from search.report.results.scored_openings import scored_openings
from search.selection.openings.ledger import Ledger
from search.selection.openings.opening import Opening
from trainables.files.whole import read_json, reading
from trainables.mistakes import Mistakes


def image_set_of(folder: RunFolder) -> str:
    """What tells the search's test set from others: the digest of its images, of the classes' names while sealed."""
    opening = _opening_of(folder)
    return opening.images.digest if opening and opening.images else stored_split(folder).test_digest


def openings_told(folders: Sequence[RunFolder]) -> str:
    """How often the test set that ``folders`` share was opened, by whom, and what was scored."""
    ledger = Ledger(folders[0].openings)
    opened = [folder for folder in folders if scored_openings(folder.test)]
    if not opened:
        return ledger.sentence_by_names(stored_split(folders[0]).test_digest)
    openings = [opening for folder in opened if (opening := _opening_of(folder))]
    if len(openings) < len(opened):
        return "this test set: opened without a line in the ledger, which was changed"
    return ledger.sentence(openings[0])


def training_told(folders: Sequence[RunFolder]) -> Iterator[str]:
    """For each search that trained on images of an opened test set, how many of its classes do."""
    for folder in folders:
        if folder.trained_on_opened.exists():
            yield f"{folder.name}: {_told(folder.trained_on_opened)}"


def _told(path: Path) -> str:
    with reading(path):
        return str(read_json(path)["told"])


def refuse_other_images(folders: Sequence[RunFolder]) -> None:
    """Test sets whose classes are called alike are not compared where their images differ.

    Raises:
        Mistakes: they do.
    """
    opened = {folder.name: opening for folder in folders if (opening := _opening_of(folder))}
    digests = {name: opening.images.digest[:12] for name, opening in opened.items() if opening.images}
    if len(set(digests.values())) > 1:
        listed = "; ".join(f"{name}: {digest}" for name, digest in digests.items())
        raise Mistakes(
            f"These searches were tested on different images of classes with the same names ({listed}) and cannot be "
            "compared; compare searches of one data set."
        )


def _opening_of(folder: RunFolder) -> Opening | None:
    """The opening whose scores are shown; None while the test classes are sealed, or where the ledger lost it."""
    shown = [entry.id for entry in scored_openings(folder.test)[:1]]
    if not shown:
        return None
    return next((entry for entry in Ledger(folder.openings).openings() if entry.id in shown), None)
