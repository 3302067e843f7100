"""The comparison as tables of text and as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from search.report.formats import (
    interval,
    is_against_baseline,
    loss_label,
    not_different,
    p_value,
    pair_name,
    parameters,
    shown_rows,
    training_sentences,
    verdict,
)
from search.report.pairs import METHOD
from search.report.results import Comparison, Pair, SplitSummary, Summary
from search.report.rows import COLUMNS, Column, Entry, Output, Row, SeedStatistics, mean_of
from search.stages import UNTRAINED, WHITENED, Role
from search.text_table import NOTHING, TextTable, best_of
from trainables.errors import listed

# The columns of the result table that an output shows.


@dataclass(frozen=True, kw_only=True)
class FilledColumn:
    """A column for one metric, with an entry per row."""

    column: Column
    metric: str
    entries: tuple[Entry, ...]

    @property
    def is_empty(self) -> bool:
        """True if no row has an entry."""
        return all(entry is None for entry in self.entries)


def filled_columns(comparison: Comparison, rows: Sequence[Row], output: Output) -> list[FilledColumn]:
    """Return the columns that ``output`` shows; while the test is sealed, its column is that of the objective."""
    objective = comparison.objective
    return [
        FilledColumn(column=column, metric=metric, entries=tuple(column.entry(row, metric) for row in rows))
        for column in COLUMNS
        if output in column.outputs
        for metric in column.metric_names(objective, comparison.test_metrics or (objective,))
    ]


def _header(comparison: Comparison, filled: FilledColumn) -> str:
    return filled.column.header.format(gallery=comparison.split.gallery)


# The comparison as CSV.

HEADER = (
    "search", "loss", "role", "trial", "against_search", "against_loss", "against_role", "metric", "stage", "mean",
    "std", "ci95_low", "ci95_high", "seeds", "p", "p_corrected",
)  # fmt: skip

Record = dict[str, str | int | float | None]
"""A line, by column; missing columns are empty."""


def as_csv(comparison: Comparison) -> str:
    """Return one number per line: a row's value at a stage, or a pair's difference."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(comparison))
    return text.getvalue()


def _records(comparison: Comparison) -> Iterator[Record]:
    columns = filled_columns(comparison, comparison.rows, Output.CSV)
    for position, row in enumerate(comparison.rows):
        name: Record = {"search": row.search, "loss": row.loss, "role": row.role, "trial": row.number}
        for filled in columns:
            if (entry := filled.entries[position]) is not None:
                yield {**name, "metric": filled.metric, "stage": filled.column.key, **_numbers(entry)}
    for pair in comparison.pairs:
        yield _pair_record(pair)


def _numbers(entry: float | SeedStatistics) -> Record:
    if not isinstance(entry, SeedStatistics):
        return {"mean": entry}
    low, high = entry.ci95 or (None, None)
    return {"mean": entry.mean, "std": entry.std, "ci95_low": low, "ci95_high": high, "seeds": entry.seeds}


def _pair_record(pair: Pair) -> Record:
    low, high = pair.ci95
    return {
        "search": pair.first.search,
        "loss": pair.first.loss,
        "role": pair.first.role,
        "against_search": pair.second.search,
        "against_loss": pair.second.loss,
        "against_role": pair.second.role,
        "metric": pair.metric,
        "stage": "test",
        "mean": pair.difference,
        "ci95_low": low,
        "ci95_high": high,
        "seeds": pair.seeds,
        "p": pair.p,
        "p_corrected": pair.p_corrected,
    }


# The whole comparison: ``holdout compare``, Markdown and LaTeX.


def text_tables(comparison: Comparison) -> list[TextTable]:
    """Return the recommendation, the table of the losses, and that of the pairs if there are any."""
    losses = replace(losses_table(comparison), notes=tuple(_notes(comparison)))
    tables = [_recommended(comparison), losses, _front(comparison), pairs_table(comparison)]
    return [table for table in tables if table.rows or table.notes]


def recommendations(comparison: Comparison) -> Iterator[str]:
    """Yield the recommendation of each search that has chosen, with the verdict of its test beside it."""
    for summary in comparison.searches:
        if summary.recommended:
            label = "" if len(comparison.searches) == 1 else f"{summary.name}: "
            verdict = _of_recommended(comparison, summary)
            yield f"{label}{summary.recommended.sentence}{'; ' * bool(verdict)}{verdict}"


def _of_recommended(comparison: Comparison, summary: Summary) -> str:
    """Return what the test says of the recommended model of a search; empty before the test, or without a pair."""
    recommended, pairs = summary.recommended, [pair for pair in comparison.pairs if pair.first.search == summary.name]
    assert recommended is not None
    tested = f"on the {summary.split.test_classes} test classes"
    if recommended.number is None:
        above = [pair.first.loss for pair in pairs if is_against_baseline(pair) and pair.differ and pair.difference > 0]
        return f"{tested} {listed(above) if above else 'no loss'} is significantly better" if pairs else ""
    own = [pair for pair in pairs if pair.first == (summary.name, recommended.loss, Role.TUNED)]
    for role, name in ((Role.BASELINE, "untrained network"), (Role.DEFAULT, "default")):
        for pair in own:
            if pair.second.role is role:
                difference = f"{pair.difference:+.4f} {interval(pair.ci95)}"
                return f"{tested} its {pair.metric} minus that of the {name} is {difference}"
    return ""


def _recommended(comparison: Comparison) -> TextTable:
    return _text([f"{sentence}." for sentence in recommendations(comparison)])


def _text(notes: Sequence[str]) -> TextTable:
    return TextTable(title="", header=(), rows=(), labels=0, notes=tuple(notes))


def losses_table(comparison: Comparison) -> TextTable:
    """Return the values of every row at each stage."""
    rows = shown_rows(comparison)
    filled = filled_columns(comparison, rows, Output.TABLE)
    columns = [entry for entry in filled if not (entry.column.optional and entry.is_empty)]
    of_test = [(place, entry) for place, entry in enumerate(columns, 2) if entry.column.metrics == "test"]
    table = _losses_table(comparison, rows, columns, long=True)
    sealed = {place for place, _ in of_test if not comparison.test_metrics}
    return replace(
        table,
        rows=tuple(
            tuple("sealed" if place in sealed else cell for place, cell in enumerate(cells)) for cells in table.rows
        ),
        best=frozenset(
            cell for place, entry in of_test for cell in best_of(place, entry.metric, list(map(mean_of, entry.entries)))
        ),
    )


def _losses_table(
    comparison: Comparison, rows: Sequence[Row], columns: Sequence[FilledColumn], *, long: bool = False
) -> TextTable:
    return TextTable(
        title=_title(comparison),
        header=("loss", "trial", *(f"{entry.metric}\n{_header(comparison, entry)}".strip() for entry in columns)),
        rows=tuple(
            (
                loss_label(comparison, row.search, row.loss),
                row.name,
                *(entry.column.text(entry.entries[position], long=long) for entry in columns),
            )
            for position, row in enumerate(rows)
        ),
        labels=2,
    )


def _title(comparison: Comparison) -> str:
    baselines = any(summary.baselines for summary in comparison.searches)
    names = ", ".join(summary.name for summary in comparison.searches)
    return f"{names}: {'networks without training, and ' * baselines}losses, default and tuned"


def _notes(comparison: Comparison) -> Iterator[str]:
    losses_with: dict[str, list[str]] = {}
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            name = loss_label(comparison, summary.name, loss)
            params = entry.tuned.params
            yield f"{name}: {'no trial finished' if params is None else parameters(params)} ({entry.trials})"
            for sentence in (*filter(None, [entry.choice]), *entry.remarks):
                losses_with.setdefault(sentence, []).append(name)
    for sentence, names in losses_with.items():
        yield f"{', '.join(names)}: {sentence}"
    yield from training_sentences(comparison)
    yield from baselines_told(comparison)
    split = comparison.split
    yield split_sentence(comparison)
    if split.luck:
        yield split.luck
    yield from comparison.warnings
    yield columns_sentence(comparison)


def _small_gallery(comparison: Comparison) -> str:
    """Return what the test on small galleries is, if a row has it."""
    count = comparison.split.gallery
    told = f"; test, {count} classes: ranked among {count} classes, as validation is, which gives higher values"
    return told if any(row.test_small for row in comparison.rows) else ""


def columns_sentence(comparison: Comparison) -> str:
    """Return what the columns of the table of the losses are, without a full stop."""
    split = comparison.split
    return (
        f"search: the value of that trial; confirmed ({confirmed_on(split)}) and final (validation of the trainings "
        f"for the test): mean ± sample deviation over seeds{' and folds' if split.folds else ''}; confirmed is "
        "optimistic for a tuned row, the best of its finalists, and final is not: its seeds had no part in the choice; "
        "test: with the 95 % "
        f"interval of the row's mean (Student's t{' over the seeds, each the mean of its folds' if split.folds else ''}"
        ", on the logit scale for metrics between 0 and 1), while rows are compared by the intervals of differences"
        f"{_small_gallery(comparison)}"
    )


def baselines_told(comparison: Comparison) -> Iterator[str]:
    """Yield what the rows without training are, if there are any."""
    if any(summary.baselines for summary in comparison.searches):
        yield (
            f"{UNTRAINED}: the pooled features of the initial weights, or the given embeddings; {WHITENED}: the same "
            "after a principal component analysis with whitening to the size of the embeddings, fitted to the training "
            "classes; neither has seeds"
        )


def split_sentence(comparison: Comparison) -> str:
    """Return the numbers of training, validation and test classes, and the openings of the test classes."""
    split = comparison.split
    merged = f" (every {split.merge} as one)" if split.merge > 1 else ""
    noise = f" with {split.label_noise:.0%} wrong labels" if split.label_noise else ""
    validate = f" and validate in {split.folds} folds" if split.folds else f", {split.validation_classes} validate"
    among = " among half of the training images too" if split.training_half else ""
    classes = f"{split.train_classes} classes train{merged}{noise}{validate}{among}, {split.test_classes} test"
    return "; ".join((f"split {split.digest[:12]}: {classes}", *protocol_sentences(split), comparison.openings))


_MARKS = {
    "parts": "the test's queries are ranked against its gallery only",
    "cameras": "a query ignores the images of its class by its own camera",
}


def protocol_sentences(split: SplitSummary) -> list[str]:
    """Return the rules of the data set by which queries are ranked, without a full stop."""
    return [_MARKS[mark] for mark in split.marks if mark in _MARKS]


def pairs_table(comparison: Comparison, *, short: bool = False) -> TextTable:
    """Return the difference of each pair, and the method of the test.

    A ``short`` table has neither the method nor the pairs that neither differ nor are the same within the margin.
    """
    pairs = comparison.pairs
    notes = [*comparison.left_out, *not_different(pairs)]
    if pairs and not short:
        notes.append(f"{METHOD} {len(pairs)} pair{'s' * (len(pairs) > 1)} (Bonferroni)")
    return TextTable(
        title=f"Differences{f' of {pairs[0].metric}' if pairs else ''} on the test classes",
        header=("pair", "difference", "95 % interval", *([] if short else ["p alone"]), "p (corrected)", ""),
        rows=tuple(
            (
                pair_name(comparison, pair),
                f"{pair.difference:+.4f}",
                interval(pair.ci95),
                *([] if short else [p_value(pair.p)]),
                p_value(pair.p_corrected),
                verdict(pair),
            )
            for pair in pairs
            if pair.differ or pair.same or not short
        ),
        labels=1,
        notes=tuple(notes),
    )


def _front(comparison: Comparison) -> TextTable:
    """Return the Pareto fronts and chosen configurations of searches with constraints or several objectives."""
    entries = [
        (loss_label(comparison, summary.name, loss), entry)
        for summary in comparison.searches
        for loss, of_loss in summary.losses.items()
        for entry in of_loss.front
    ]
    metrics = list(dict.fromkeys(metric for _, entry in entries for metric in entry.searched))
    return TextTable(
        title="Pareto front on the validation classes: the configurations that no other one dominates",
        header=("loss", "trial", *metrics, *(f"{metric}\nfresh seeds" for metric in metrics)),
        rows=tuple(
            (
                label,
                f"{entry.trial}{' (chosen)' if entry.chosen else ''}",
                *(_number(measured, metric) for measured in (entry.searched, entry.confirmed) for metric in metrics),
            )
            for label, entry in entries
        ),
        labels=2,
    )


def _number(measured: Mapping[str, float] | None, metric: str) -> str:
    return NOTHING if measured is None or metric not in measured else f"{measured[metric]:.4g}"


# The comparison on one screen, printed at the end of a search.


def headline_tables(comparison: Comparison) -> list[TextTable]:
    """Return the losses with confirmed and test values, the pairs that differ, and the most important notes."""
    notes = [*headline_sentences(comparison), _further(comparison)]
    tables = [
        _recommended(comparison), headline_losses(comparison), _front(comparison), pairs_table(comparison, short=True),
        _text(notes),
    ]  # fmt: skip
    return [table for table in tables if table.rows or table.notes]


def headline_losses(comparison: Comparison) -> TextTable:
    """Return the table of the losses on one screen."""
    rows = shown_rows(comparison)
    filled = filled_columns(comparison, rows, Output.HEADLINE)
    available = {entry.column.key for entry in filled if not entry.is_empty}
    columns = [
        entry for entry in filled if (entry.column.until not in available if entry.column.until else not entry.is_empty)
    ]
    return replace(
        _losses_table(comparison, rows, columns),
        spare=tuple(
            position
            for position, entry in enumerate(columns, 2)
            if entry.column.metrics == "test" and entry.metric in comparison.test_metrics[1:]
        ),
        notes=tuple(
            f"{loss_label(comparison, row.search, row.loss)}: {parameters(row.params)}"
            for row in rows
            if row.role is Role.TUNED and row.number and row.params
        ),
    )


def confirmed_on(split: SplitSummary) -> str:
    """Return the classes on which configurations are confirmed, in words."""
    if not split.halves:
        return "on the validation classes"
    return "on all training classes, each half by a model of the other half"


MOST_CHOICES = 5
"""Losses of a search up to which the headline has the reason of each choice."""


def headline_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the most important notes, without a full stop."""
    split = comparison.split
    yield (
        f"mean ± sample deviation over seeds{' and folds' if split.folds else ''}; confirmed: {confirmed_on(split)}, "
        f"with fresh seeds{_small_gallery(comparison)}"
    )
    yield from training_sentences(comparison)
    yield from baselines_told(comparison)
    yield split_sentence(comparison)
    yield from filter(None, [split.luck])
    yield from comparison.warnings
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            choice = entry.choice if len(summary.losses) <= MOST_CHOICES else None
            for text in (*filter(None, [choice]), *entry.incomplete_seeds):
                yield f"{loss_label(comparison, summary.name, loss)}: {text}"


def _further(comparison: Comparison) -> str:
    """Return what `holdout compare` shows beyond the headline."""
    remarks = sum(
        bool(entry.choice) + len(entry.remarks) for summary in comparison.searches for entry in summary.losses.values()
    )
    more = [
        "the values of the search and of the final trainings",
        *(["all metrics", "the intervals"] if comparison.test_metrics else []),
        *(["all pairs"] if comparison.pairs else []),
        *([f"{remarks} note{'s' * (remarks > 1)} on the losses"] if remarks else []),
    ]
    names = " ".join(summary.name for summary in comparison.searches)
    return f"`holdout compare {names}` shows {listed(more)}."
