"""The comparison of default and tuned losses, on one split and one test set."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from search.plan.runs import RunFolder, stored_split
from search.report.anytime import compared_curves
from search.report.pairs import comparable_rows, default_and_tuned, pairs_of
from search.report.results import ComparedCurve, Comparison, Row, RowKey, SearchCurve, Summary, scored_openings
from search.selection import Family, Ledger, Opening, Selection
from search.stages import Role
from trainables.files import read_json, reading
from trainables.mistakes import Mistakes

# The table of a comparison as it was frozen, and what of it was chosen after the test classes were opened.

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


# Which test images a search was scored on, and how often these were opened.


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


# The comparison of losses: default and tuned, from the search to the test classes, in one table for all searches.


def compare(folders: Sequence[RunFolder], summaries: Sequence[Summary]) -> Comparison:
    """The losses of several searches beside each other.

    Args:
        folders: the searches.
        summaries: their summaries, in the same order.

    Raises:
        Mistakes: the searches have not the same split, test images or objective.
    """
    refuse_mixed(summaries)
    refuse_other_images(folders)
    rows = [row for summary in summaries for row in rows_of(summary)]
    objective = summaries[0].objective
    computed = {name for row in rows for name in row.test or {}}
    metrics = shown_metrics(objective, computed)
    wanted = list(default_and_tuned(rows))
    tested, left_out = comparable_rows(folders, rows, metrics, itertools.chain.from_iterable(wanted))
    return Comparison(
        objective=objective,
        split=summaries[0].split,
        openings=openings_told(folders),
        warnings=(
            *training_told(folders),
            *chosen_after_opening(folders, family_of(rows, metrics), [row.key for row in rows if row.test]),
        ),
        test_metrics=tuple(metrics),
        rows=tuple(rows),
        pairs=tuple(pairs_of(tested, wanted)) if tested else (),
        left_out=tuple(left_out),
        anytime=tuple(_anytime(summaries)),
        searches=tuple(summaries),
    )


def refuse_mixed(summaries: Sequence[Summary]) -> None:
    """Different splits are never compared silently, nor values of different objectives or in different galleries.

    Raises:
        Mistakes: the searches have not the same split, objective or validation's gallery.
    """
    splits = {summary.name: summary.split.digest[:12] for summary in summaries}
    objectives = {summary.name: summary.objective for summary in summaries}
    galleries = {
        summary.name: "with half of the training images" if summary.split.training_half else "validation classes alone"
        for summary in summaries
    }
    for what, plural, values in (
        ("split", "splits", splits),
        ("objective", "objectives", objectives),
        ("validation's gallery", "galleries for the validation", galleries),
    ):
        if len(set(values.values())) > 1:
            listed = "; ".join(f"{name}: {value}" for name, value in values.items())
            raise Mistakes(
                f"These searches have different {plural} and cannot be compared ({listed}); compare searches of one "
                f"{what}."
            )


def rows_of(summary: Summary) -> Iterator[Row]:
    """Two rows a loss: what was configured, and its values from the search to the test."""
    for loss, entry in summary.losses.items():
        default, chosen, best = entry.default, entry.confirmed, entry.best
        yield Row(
            search=summary.name,
            loss=loss,
            role=Role.DEFAULT,
            number=0,
            params=default.params,
            search_value=default.value,
            confirmed=default.confirmed,
            final=default.final,
            test=default.test,
            test_small=default.test_small,
        )
        tuned = chosen or best
        yield Row(
            search=summary.name,
            loss=loss,
            role=Role.TUNED,
            number=tuned.number if tuned else None,
            params=tuned.params if tuned else None,
            search_value=chosen.search_value if chosen else best.value if best else None,
            confirmed=chosen,
            final=entry.final,
            test=entry.test,
            test_small=entry.test_small,
        )


def _anytime(summaries: Sequence[Summary]) -> Iterator[SearchCurve]:
    """Each loss's curves beside each other; where several searches have it, their mean as well."""
    for loss in dict.fromkeys(loss for summary in summaries for loss in summary.losses):
        by_search = {summary.name: [summary.losses[loss]] for summary in summaries if loss in summary.losses}
        curves = compared_curves(loss, by_search)
        for search, curve in curves.items():
            yield _of_search(search, curve)
        if len(curves) > 1:
            entries = [entry for found in by_search.values() for entry in found]
            (mean,) = compared_curves(loss, {"mean": entries}).values()
            yield _of_search(None, mean)


def _of_search(search: str | None, curve: ComparedCurve) -> SearchCurve:
    return SearchCurve(
        search=search,
        loss=curve.loss,
        points=curve.points,
        against=curve.against,
        cost_ratio=curve.cost_ratio,
    )
