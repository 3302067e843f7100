"""The table of a comparison as it was frozen, and what of it was chosen after the test classes were opened."""

from collections.abc import Collection, Iterator, Sequence

from search.plan.runs import RunFolder
from search.report.pairs.pairs_of import default_and_tuned
from search.report.results.row import Row, RowKey
from search.selection.family import Family
from search.selection.selection import Selection

AFTER = "chosen after opening"


def shown_metrics(objective: str, computed: Collection[str]) -> list[str]:
    """The test metrics that a comparison shows, of those that were ``computed``."""
    return [name for name in dict.fromkeys((objective, "recall_at_1")) if name in computed]


def family_of(rows: Sequence[Row], metrics: Sequence[str]) -> Family:
    """The table that compares ``rows``."""
    return Family(
        metrics=frozenset(metrics),
        rows=frozenset(row.key for row in rows),
        pairs=frozenset(map(frozenset, default_and_tuned(rows))),
    )


def chosen_after_opening(folders: Sequence[RunFolder], shown: Family, tested: Collection[RowKey]) -> Iterator[str]:
    """Sentences on what of a table was not frozen before the test classes were opened.

    Args:
        folders: the searches of the table.
        shown: the table.
        tested: the rows that have test results, be they shown or not; of others nothing was seen.

    Raises:
        Mistakes: a selection was changed after it was frozen.
    """
    opened = [folder for folder in folders if folder.test.exists()]
    if not opened:
        return
    families = {Selection.load(folder.selection).family for folder in opened}
    if len(families) > 1:
        names = ", ".join(folder.name for folder in opened)
        yield f"{AFTER}: to put {names} in one table; each was frozen with a table of its own"
        return
    (frozen,) = families
    if shown.metrics != frozen.metrics:
        yield f"{AFTER}: {_listed(shown.metrics)}; the metrics frozen with the choice were {_listed(frozen.metrics)}"
    rows, frozen_rows = ({row for row in family.rows if row in tested} for family in (shown, frozen))
    if rows != frozen_rows:
        yield f"{AFTER}: these {len(rows)} rows; {len(frozen_rows)} were frozen with the choice"
    pairs, frozen_pairs = (
        {pair for pair in family.pairs if all(row in tested for row in pair)} for family in (shown, frozen)
    )
    if pairs != frozen_pairs:
        yield f"{AFTER}: these {len(pairs)} pairs; {len(frozen_pairs)} were frozen with the choice"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
