"""The comparison as tables of text and as CSV."""

import csv
import io
from collections.abc import Iterator

from search.report.anytime import anytime_table
from search.report.formats import (
    interval,
    loss_label,
    noise_text,
    not_different,
    pair_name,
    parameters,
    shown_rows,
    spread,
    trial_name,
    verdict,
)
from search.report.pairs import HOW
from search.report.results import Comparison, LossSummary, Pair, Row, SeedInterval, SeedStatistics
from search.report.text_table import NOTHING, TextTable, best_of
from search.stages import Role

# The comparison as CSV, for programs.

HEADER = (
    "search", "loss", "role", "trial", "against_search", "against_loss", "against_role", "metric", "stage", "epochs",
    "mean", "std", "ci95_low", "ci95_high", "seeds", "p", "p_holm",
)  # fmt: skip

Record = dict[str, str | int | float | None]
"""A line, by column; what is missing stays empty."""


def as_csv(comparison: Comparison) -> str:
    """One number a line: a row's value at a stage, a pair's difference, or a curve's value after some epochs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(comparison))
    return text.getvalue()


def _records(comparison: Comparison) -> Iterator[Record]:
    for row in comparison.rows:
        yield from _of_row(comparison, row)
    for pair in comparison.pairs:
        yield _of_pair(pair)
    for curve in comparison.anytime:
        name: Record = {"search": curve.search, "loss": curve.loss}
        for point in curve.points:
            if point.value is not None:
                value: Record = {"epochs": point.epochs, "mean": point.value}
                yield {**name, "metric": comparison.objective, "stage": "best so far", **value}


def _of_row(comparison: Comparison, row: Row) -> Iterator[Record]:
    objective = comparison.objective
    name: Record = {"search": row.search, "loss": row.loss, "role": row.role, "trial": row.number}
    if row.search_value is not None:
        yield {**name, "metric": objective, "stage": "search", "mean": row.search_value}
    for stage, values in (("confirmed", row.confirmed), ("final", row.final), ("test_small", row.test_small)):
        if values:
            yield {**name, "metric": objective, "stage": stage, **_statistics(values)}
    if row.test:
        for metric in comparison.test_metrics:
            yield {**name, "metric": metric, "stage": "test", **_statistics(row.test[metric])}


def _statistics(values: SeedStatistics) -> Record:
    ci95 = values.ci95 if isinstance(values, SeedInterval) else None
    low, high = ci95 or (None, None)
    return {"mean": values.mean, "std": values.std, "ci95_low": low, "ci95_high": high, "seeds": values.seeds}


def _of_pair(pair: Pair) -> Record:
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
        "p_holm": pair.p_holm,
    }


# The comparison as tables of text, with everything that it says.


def text_tables(comparison: Comparison) -> list[TextTable]:
    """The losses, the pairs where there are any, and the anytime curves where an epoch was trained."""
    tables = [_losses(comparison), pairs_table(comparison), _anytime(comparison)]
    return [table for table in tables if table.rows or table.notes]


def _losses(comparison: Comparison) -> TextTable:
    objective, metrics = comparison.objective, comparison.test_metrics
    rows = shown_rows(comparison)
    small = any(row.test_small for row in rows)
    first = 5 + small
    tested = {name: [row.test[name].mean if row.test else None for row in rows] for name in metrics}
    return TextTable(
        title=f"{', '.join(summary.name for summary in comparison.searches)}: losses, default and tuned",
        header=(
            "loss",
            "trial",
            *(f"{stage}\n{objective}" for stage in ("search", "confirmed", "final")),
            *([f"test, {comparison.split.gallery} classes\n{objective}"] if small else []),
            *(f"test\n{name}" for name in metrics or [objective]),
        ),
        rows=tuple(
            (
                loss_label(comparison, row.search, row.loss),
                trial_name(comparison, row),
                NOTHING if row.search_value is None else f"{row.search_value:.4f}",
                spread(row.confirmed),
                spread(row.final),
                *([spread(row.test_small)] if small else []),
                *([spread((row.test or {}).get(name)) for name in metrics] or ["sealed"]),
            )
            for row in rows
        ),
        labels=2,
        notes=tuple(_notes(comparison)),
        best=frozenset(
            cell for column, (name, means) in enumerate(tested.items(), first) for cell in best_of(column, name, means)
        ),
    )


def _notes(comparison: Comparison) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            name = loss_label(comparison, summary.name, loss)
            tuned, trials = entry.confirmed or entry.best, entry.trials
            counts = f"{trials.complete} complete, {trials.pruned} pruned, {trials.failed} failed"
            yield f"{name}: {parameters(tuned.params) if tuned else 'no trial finished'} ({counts})"
            for sentence in sentences_of(entry):
                said.setdefault(sentence, []).append(name)
    for sentence, names in said.items():
        yield f"{', '.join(names)}: {sentence}"
    for summary in comparison.searches:
        if summary.noise:
            yield noise_text(summary.noise, comparison.objective)
    split = comparison.split
    yield split_sentence(comparison)
    if split.luck:
        yield split.luck
    yield from comparison.warnings
    yield (
        "search: one run, or the mean of equal ones; confirmed, final (validation of the trainings for the test): "
        f"mean ± sample deviation over seeds{' and folds' if split.folds else ''}; shrunk: towards the mean of all "
        "finalists, as the best of several is luck in part; test: with the 95 % interval "
        f"(Student's t{' over the seeds, each the mean of its folds' if split.folds else ''}, on the logit scale for "
        "metrics between 0 and 1)"
    )


def sentences_of(entry: LossSummary) -> list[str]:
    """What is to be said of a loss beside its values."""
    audited = entry.audit.sentence if entry.audit else None
    agreed = entry.other_splits.sentence if entry.other_splits else None
    found = (
        *entry.incomplete_seeds,
        entry.ended_early,
        agreed,
        entry.overtuned,
        audited,
        *(one.sentence for one in entry.diagnostics),
    )
    return [sentence for sentence in found if sentence]


def split_sentence(comparison: Comparison) -> str:
    """What trains, validates and tests, and how often the test classes were opened."""
    split = comparison.split
    merged = f" (every {split.merge} as one)" if split.merge > 1 else ""
    validate = f" and validate in {split.folds} folds" if split.folds else f", {split.validation_classes} validate"
    among = " among half of the training images too" if split.training_half else ""
    classes = f"{split.train_classes} classes train{merged}{validate}{among}, {split.test_classes} test"
    return f"split {split.digest[:12]}: {classes}; {comparison.openings}"


def pairs_table(comparison: Comparison) -> TextTable:
    """The difference of each pair, and what it is tested by."""
    pairs = comparison.pairs
    notes = [*comparison.left_out, *not_different(pairs)]
    if pairs:
        notes.append(f"{HOW} {len(pairs)} pair{'s' * (len(pairs) > 1)}")
    return TextTable(
        title=f"Differences of {pairs[0].metric} on the test classes" if pairs else "Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p", "p (Holm)", ""),
        rows=tuple(
            (
                pair_name(comparison, pair),
                f"{pair.difference:+.4f}",
                interval(pair.ci95),
                f"{pair.p:.4f}",
                f"{pair.p_holm:.4f}",
                verdict(pair),
            )
            for pair in pairs
        ),
        labels=1,
        notes=tuple(notes),
    )


def _anytime(comparison: Comparison) -> TextTable:
    curves = [(loss_label(comparison, curve.search, curve.loss), curve) for curve in comparison.anytime]
    return anytime_table(comparison.objective, curves, "{:.4f}".format)


# The comparison on one screen: what a search prints at its end.


def headline_tables(comparison: Comparison) -> list[TextTable]:
    """The losses with what was confirmed and tested, the pairs that differ, and where the rest is said."""
    tables = [_headline_losses(comparison), _pairs(comparison), _end(comparison)]
    return [table for table in tables if table.rows or table.notes]


def _headline_losses(comparison: Comparison) -> TextTable:
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
