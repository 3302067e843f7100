"""Report sections: the answer, and how to reproduce it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from search import __version__
from search.plan.runs import RunFolder, stored_split
from search.plan.stored import StoredSearch
from search.report.drawing import Section
from search.report.formats import loss_label
from search.report.results import Comparison, Pair, Row, scored_openings
from search.report.text_table import TextTable
from search.selection import Ledger, Selection
from search.stages import Role

# The answer: which losses are better than their defaults and than each other, on classes that no training saw.

SMALL_VALIDATION = 10
"""With fewer validation classes, which configuration is chosen depends on them more than on the configuration."""


def answer(comparison: Comparison, folders: Sequence[RunFolder]) -> Section:
    """The best loss, a sentence a loss, the split, and when, by whom and how often the test classes were opened."""
    tuned = [row for row in comparison.rows if row.role is Role.TUNED]
    openings = _openings(folders)
    return Section(
        name="answer",
        title="The answer",
        sentences=(
            *_best(comparison, [row for row in tuned if row.test]),
            *(_of_loss(comparison, row) for row in tuned),
            *_incomplete(comparison),
            *_setting(comparison),
        ),
        tables=(openings,) if openings.rows else (),
        missing=tuple(_missing(comparison)),
    )


def _best(comparison: Comparison, tested: Sequence[Row]) -> Iterator[str]:
    """Which of several losses has the highest mean, and what that says."""
    pairs = [pair for pair in comparison.pairs if pair.second.role is Role.TUNED]
    if not pairs:
        return
    metric = pairs[0].metric
    means = {row.key: row.test[metric].mean for row in tested if row.test}
    best = max(tested, key=lambda row: means[row.key])
    of_best = _others(comparison, best)
    said = f"Of {len(tested)} losses {loss_label(comparison, best.search, best.loss)} has the highest mean {metric} on "
    said += f"the test classes, {means[best.key]:.4f}"
    if same := [pair for pair in of_best if not pair.differ]:
        said += f"; {_names(comparison, same, best)} cannot be told from it"
    elif len(of_best) == len(tested) - 1:
        said += ", and beats every other"
    yield f"{said}."
    if len(tested) > 2 and not all(pair.differ for pair in pairs):
        yield "Where a loss is not named beside another below, the two cannot be told apart."
    if (count := len(comparison.pairs)) > 1:
        yield f"An interval is its pair's alone; what differs is corrected for all {count} pairs (Holm)."


def _incomplete(comparison: Comparison) -> Iterator[str]:
    """Which intervals rest on fewer seeds than were asked for, and why."""
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            for told in entry.incomplete_seeds:
                yield f"{loss_label(comparison, summary.name, loss)}, {told}."


def _of_loss(comparison: Comparison, row: Row) -> str:
    label = loss_label(comparison, row.search, row.loss)
    if row.number is None:
        return f"{label}: no trial finished."
    if not row.test:
        value = row.confirmed.mean if row.confirmed else row.search_value
        how = "confirmed with fresh seeds" if row.confirmed else "the best of the search, which flatters"
        return f"{label}: {value:.4f} of {comparison.objective} on the validation classes, {how}; the test is sealed."
    if row.number == 0:
        said = ["keeps the paper's default"]
    else:
        said = [_against(pair, "its default") for pair in comparison.pairs if _is_own(pair, row)]
    others = _others(comparison, row)
    for word, found in (("beats", _better(row, others)), ("is worse than", _worse(row, others))):
        if found:
            said.append(f"{word} {_names(comparison, found, row)}")
    return f"{label} " + "; ".join(said) + "."


def _is_own(pair: Pair, row: Row) -> bool:
    return pair.first == row.key and pair.second == row.key._replace(role=Role.DEFAULT)


def _against(pair: Pair, other: str) -> str:
    low, high = pair.ci95
    points = f"{100 * pair.difference:+.1f} points of {pair.metric} [{100 * low:+.1f}, {100 * high:+.1f}]"
    verb = "cannot be told from" if not pair.differ else "beats" if pair.difference > 0 else "is worse than"
    return f"tuned {verb} {other} ({points})"


def _better(row: Row, pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.differ and (pair.difference > 0) == (pair.first == row.key)]


def _worse(row: Row, pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.differ and (pair.difference > 0) != (pair.first == row.key)]


def _others(comparison: Comparison, row: Row) -> list[Pair]:
    """The pairs of ``row`` with other losses."""
    return [pair for pair in comparison.pairs if row.key in (pair.first, pair.second) and not _is_own(pair, row)]


def _names(comparison: Comparison, pairs: Sequence[Pair], row: Row) -> str:
    """The other losses of pairs of ``row``."""
    keys = [pair.second if pair.first == row.key else pair.first for pair in pairs]
    *first, last = [loss_label(comparison, key.search, key.loss) for key in keys]
    return f"{', '.join(first)} and {last}" if first else last


def _setting(comparison: Comparison) -> Iterator[str]:
    split = comparison.split
    folds = f" in {split.folds} folds" if split.folds else ""
    yield (
        f"Of {split.train_classes + (0 if split.folds else split.validation_classes)} training classes "
        f"{split.validation_classes} validate{folds}; {split.test_classes} other classes test (split "
        f"{split.digest[:12]})."
    )
    if split.gallery < SMALL_VALIDATION:
        yield (f"Only {split.gallery} classes validate at once: which configuration is chosen is to a large part luck.")
    yield f"The seal: {comparison.openings}."
    yield from comparison.warnings


def _openings(folders: Sequence[RunFolder]) -> TextTable:
    scored = {opening.id for folder in folders for opening in scored_openings(folder.test)}
    found = [opening for opening in Ledger(folders[0].openings).openings() if opening.id in scored]
    return TextTable(
        title="Openings of the test classes that were scored here",
        header=("when", "by", "configurations", "why"),
        rows=tuple(
            (opening.time, opening.search, str(sum(opening.configurations.values())), opening.reason)
            for opening in found
        ),
        labels=2,
        notes=(),
    )


def _missing(comparison: Comparison) -> Iterator[str]:
    if not any(row.test for row in comparison.rows):
        yield "Nothing about the test classes: they are sealed until the choice is frozen; `holdout run` goes on."
    yield from comparison.left_out


# How to do it again: the commands, the search file, the digests, the seeds, and the versions.


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
