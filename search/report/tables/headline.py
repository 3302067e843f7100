"""The comparison on one screen: what a search prints at its end."""

from collections.abc import Iterator

from search.report.results.comparison import Comparison
from search.report.results.row import Row
from search.report.results.seed_statistics import SeedStatistics
from search.report.tables.formats import interval, not_different, parameters, verdict
from search.report.tables.row_names import loss_label, pair_name, shown_rows, trial_name
from search.report.tables.text_table import NOTHING, TextTable
from search.report.tables.text_tables import sentences_of, split_sentence
from search.selection.role import Role


def headline_tables(comparison: Comparison) -> list[TextTable]:
    """The losses with what was confirmed and tested, the pairs that differ, and where the rest is said."""
    tables = [_losses(comparison), _pairs(comparison), _end(comparison)]
    return [table for table in tables if table.rows or table.notes]


def _losses(comparison: Comparison) -> TextTable:
    rows = shown_rows(comparison)
    columns = dict(_columns(comparison, rows))
    return TextTable(
        title=f"{', '.join(summary.name for summary in comparison.searches)}: losses, default and tuned",
        header=("loss", "trial", *columns),
        rows=tuple(
            (
                loss_label(comparison, row.search, row.loss),
                trial_name(comparison, row),
                *(cells[position] for cells in columns.values()),
            )
            for position, row in enumerate(rows)
        ),
        labels=2,
        spare=tuple(
            position
            for position, heading in enumerate(columns, 2)
            if heading in map(_test_of, comparison.test_metrics[1:])
        ),
        notes=tuple(
            f"{loss_label(comparison, row.search, row.loss)}: {parameters(row.params)}"
            for row in rows
            if row.role is Role.TUNED and row.number and row.params
        ),
    )


def _columns(comparison: Comparison, rows: list[Row]) -> Iterator[tuple[str, list[str]]]:
    """The heading and the cells of each value that some row has."""
    objective, gallery = comparison.objective, comparison.split.gallery
    if any(row.confirmed for row in rows):
        yield f"{objective}\nconfirmed", [_spread(row.confirmed) for row in rows]
    else:
        values = [row.search_value for row in rows]
        yield f"{objective}\nsearch", [NOTHING if value is None else f"{value:.4f}" for value in values]
    if any(row.test_small for row in rows):
        yield f"{objective}\ntest, {gallery} classes", [_spread(row.test_small) for row in rows]
    for metric in comparison.test_metrics:
        yield _test_of(metric), [_spread((row.test or {}).get(metric)) for row in rows]


def _test_of(metric: str) -> str:
    return f"{metric}\ntest"


def _spread(entry: SeedStatistics | None) -> str:
    """Mean ± sample deviation."""
    if entry is None:
        return NOTHING
    return f"{entry.mean:.4f}" if entry.std is None else f"{entry.mean:.4f} ± {entry.std:.4f}"


def _pairs(comparison: Comparison) -> TextTable:
    """The pairs that differ; those that do not are counted."""
    pairs = comparison.pairs
    different = [pair for pair in pairs if pair.differ]
    return TextTable(
        title=f"Differences of {pairs[0].metric} on the test classes" if pairs else "",
        header=("pair", "difference", "95 % interval", "p (Holm)", ""),
        rows=tuple(
            (
                pair_name(comparison, pair),
                f"{pair.difference:+.4f}",
                interval(pair.ci95),
                f"{pair.p_holm:.4f}",
                verdict(pair),
            )
            for pair in different
        ),
        labels=1,
        notes=(*comparison.left_out, *not_different(pairs)),
    )


def _end(comparison: Comparison) -> TextTable:
    split = comparison.split
    folds = " and folds" if split.folds else ""
    notes = [f"mean ± sample deviation over seeds{folds}; confirmed: on the validation classes, with fresh seeds"]
    if any(row.test_small for row in comparison.rows):
        notes[0] += f"; test, {split.gallery} classes: among as many test classes as validate"
    notes += [split_sentence(comparison), *([split.luck] if split.luck else []), *comparison.warnings]
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            notes += [f"{loss_label(comparison, summary.name, loss)}: {told}" for told in entry.incomplete_seeds]
    told = sum(len(sentences_of(entry)) for summary in comparison.searches for entry in summary.losses.values())
    more = [
        "the values of the search and of the final trainings",
        *(["all metrics", "the intervals"] if comparison.test_metrics else []),
        *(["all pairs"] if comparison.pairs else []),
        "the curves",
        *([f"{told} note{'s' * (told > 1)} on the losses"] if told else []),
    ]
    names = " ".join(summary.name for summary in comparison.searches)
    return TextTable(
        title="", header=(), rows=(), labels=0,
        notes=(*notes, f"`holdout compare {names}` shows {', '.join(more[:-1])} and {more[-1]}."),
    )  # fmt: skip
