"""The first and the last section of a report: the answer, and the steps to reproduce it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from search import __version__
from search.plan.runs import RunFolder, mlflow_page, stored_split
from search.plan.stored import StoredSearch
from search.report.compared import Comparison, Pair
from search.report.comparison_tables import baselines_told, headline_losses, recommendations, split_sentence
from search.report.drawing import Figure, Section
from search.report.formats import interval, is_against_baseline, loss_label, sentence, the_same, training_sentences
from search.report.overtuning import overtuning_sentence
from search.report.rows import Row
from search.report.scored import scored_openings
from search.report.text_table import TextTable
from search.selection import Ledger, Selection
from search.stages import Role
from trainables.errors import counted

MOST_WARNINGS = 2
"""Number of warnings above the picture; others are below it."""


def answer(comparison: Comparison, folders: Sequence[RunFolder], picture: Figure | None = None) -> Section:
    """Return the recommendation, the result table, the best loss, a ``picture`` of all losses, and remarks.

    The remarks have a sentence per loss, the split, and the openings of the test classes.
    """
    tuned = [row for row in comparison.rows if row.role is Role.TUNED]
    openings = _openings(folders)
    tested = [row for row in tuned if row.test]
    # the table has the values of the validation classes, so only the highest one has a sentence
    told = tuned if tested else [max(tuned, key=_validated)]
    best, *others = [*_best(comparison, tested), *(_of_loss(comparison, row) for row in told)]
    return Section(
        name="answer",
        title="The answer",
        lead=tuple(f"{text}." for text in recommendations(comparison)),
        results=(headline_losses(comparison),),
        sentences=(best, *comparison.warnings[:MOST_WARNINGS]),
        figures=(picture,) if picture else (),
        remarks=(
            *others,
            *(f"{text}." for text in training_sentences(comparison)),
            *map(sentence, baselines_told(comparison)),
            *_incomplete(comparison),
            sentence(split_sentence(comparison)),
            *map(sentence, filter(None, [comparison.split.luck])),
            *comparison.warnings[MOST_WARNINGS:],
        ),
        tables=(openings,) if openings.rows else (),
        pending=tuple(_pending(comparison)),
    )


def _best(comparison: Comparison, tested: Sequence[Row]) -> Iterator[str]:
    """Yield sentences on the loss with the highest mean, if several were tested."""
    pairs = [pair for pair in comparison.pairs if pair.second.role is Role.TUNED]
    if not pairs:
        return
    metric = pairs[0].metric
    means = {row.key: score.mean for row in tested if (score := (row.test or {}).get(metric))}
    best = max((row for row in tested if row.key in means), key=lambda row: means[row.key])
    of_best = _others(comparison, best)
    label = loss_label(comparison, best.search, best.loss)
    text = f"Of {len(tested)} tuned losses, {label} has the highest mean {metric} on the test classes, "
    text += f"{means[best.key]:.4f}"
    if alike := [pair for pair in of_best if not pair.differ]:
        same = [pair for pair in alike if pair.same]
        undecided = [pair for pair in alike if not pair.same]
        for found, word in ((same, the_same(same[0]) if same else ""), (undecided, "not significantly different")):
            if found:
                text += f"; {_names(comparison, found, best)} {'is' if len(found) == 1 else 'are'} {word}"
    elif len(of_best) == len(tested) - 1:
        text += ", and beats every other"
    yield f"{text}."
    if len(tested) > 2 and not all(pair.differ for pair in pairs):
        yield "Losses that are not compared below do not differ significantly."
    if (count := len(comparison.pairs)) > 1:
        yield f"Intervals and verdicts are corrected for all {count} pairs (Bonferroni)."


def _validated(row: Row) -> tuple[bool, float]:
    """Return a key that sorts values of the validation classes, confirmed ones above those of the search."""
    return row.confirmed is not None, row.confirmed.mean if row.confirmed else row.search_value or 0.0


def _incomplete(comparison: Comparison) -> Iterator[str]:
    """Yield a sentence for each interval based on fewer seeds than planned."""
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            for text in entry.incomplete_seeds:
                yield f"{loss_label(comparison, summary.name, loss)}, {text}."


def _of_loss(comparison: Comparison, row: Row) -> str:
    label = loss_label(comparison, row.search, row.loss)
    if row.number is None:
        return f"{label}: no trial finished."
    if not row.test:
        if row.confirmed:
            value: float | None = row.confirmed.mean
            basis = f"mean of {counted(row.confirmed.seeds, 'fresh seed')}"
        else:
            (summary,) = [summary for summary in comparison.searches if summary.name == row.search]
            value, complete = row.search_value, summary.losses[row.loss].trials.complete
            basis = f"optimistic: best of {counted(complete, 'trial')}"
        return (
            f"{label}: {comparison.objective} {value:.4f} on the validation classes ({basis}); the test classes are "
            "sealed."
        )
    if row.number == 0:
        parts = ["the default was kept"]
    else:
        parts = [_against_default(pair) for pair in comparison.pairs if _is_own(pair, row)]
    others = _others(comparison, row)
    for verb, is_better in (("beats", True), ("is worse than", False)):
        found = [
            pair for pair in others if pair.differ and (pair.difference > 0) == ((pair.first == row.key) == is_better)
        ]
        if found:
            parts.append(f"{verb} {_names(comparison, found, row)}")
    return f"{label}: {'; '.join(parts)}."


def _is_own(pair: Pair, row: Row) -> bool:
    return pair.first == row.key and pair.second == row.key._replace(role=Role.DEFAULT)


def _against_default(pair: Pair) -> str:
    change = f"{pair.metric} {pair.difference:+.4f} {interval(pair.ci95)}"
    verb = "beats" if pair.difference > 0 else "is worse than"
    if not pair.differ:
        verb = f"is {the_same(pair)} as" if pair.same else "is not significantly different from"
    return f"tuned {verb} its default ({change})"


def _others(comparison: Comparison, row: Row) -> list[Pair]:
    """Return the pairs of ``row`` with other losses."""
    of_row = [pair for pair in comparison.pairs if row.key in (pair.first, pair.second)]
    return [pair for pair in of_row if not _is_own(pair, row) and not is_against_baseline(pair)]


def _names(comparison: Comparison, pairs: Sequence[Pair], row: Row) -> str:
    """Return the names of the other losses in pairs of ``row``."""
    keys = [pair.second if pair.first == row.key else pair.first for pair in pairs]
    *first, last = [loss_label(comparison, key.search, key.loss) for key in keys]
    return f"{', '.join(first)} and {last}" if first else last


def _openings(folders: Sequence[RunFolder]) -> TextTable:
    scored = {opening.id for folder in folders for opening in scored_openings(folder.test)}
    found = [opening for opening in Ledger(folders[0].openings).openings() if opening.id in scored]
    return TextTable(
        title="Scored openings of the test classes",
        header=("time", "search", "reason", "configurations"),
        rows=tuple(
            (opening.time, opening.search, opening.reason, str(sum(opening.configurations.values())))
            for opening in found
        ),
        labels=3,
    )


def _pending(comparison: Comparison) -> Iterator[str]:
    if not any(row.test for row in comparison.rows):
        yield "Test results: the test classes are sealed until the choice is frozen. `holdout run` resumes it."


# Reproduction: the commands, the search file, the digests, the seeds, and the version.


def again(searches: Sequence[StoredSearch], campaign: Path | None = None) -> Section:
    """Return the commands that run and verify these searches, and their digests, seeds and files.

    ``campaign`` is the file of the campaign that they belong to, if any.
    """
    names = " ".join(search.name for search in searches)
    files = [search.folder.config for search in searches] if campaign is None else [campaign]
    checked = campaign.parent.name if campaign else names
    page = mlflow_page([search.folder for search in searches])
    return Section(
        name="again",
        title="Reproduce",
        sentences=(
            f"Written by Holdout {__version__}. The file below holds all settings.",
            f"`holdout verify {checked}` recomputes all results from the records; "
            + (f"`holdout run {campaign}`" if campaign else f"`holdout compare {names}`")
            + " prints the tables.",
            *([f"Compared in MLflow: `{page}`."] if len(searches) > 1 and page else []),
            *filter(None, [overtuning_sentence(searches[0].folder.runs)]),
        ),
        results=(
            TextTable(
                title="Searches",
                header=("search", "command", "split", "frozen choice", "seed"),
                rows=tuple(_row(search) for search in searches),
                labels=2,
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
        Selection.load(selection).digest[:12] if selection.exists() else "not yet",
        str(search.config["search"]["seed"]),
    )
