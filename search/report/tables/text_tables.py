"""The comparison as tables of text."""

from collections.abc import Iterator

from search.report.pairs.pairs_of import HOW
from search.report.results.comparison import Comparison
from search.report.results.pair import Pair
from search.report.results.row import Row
from search.report.results.summary import SplitSummary
from search.report.tables.anytime_table import anytime_table
from search.report.tables.formats import interval, parameters, spread, verdict
from search.report.tables.noise_text import noise_text
from search.report.tables.text_table import NOTHING, TextTable
from search.selection.role import Role


def text_tables(comparison: Comparison) -> list[TextTable]:
    """The losses, the pairs where there are any, and the anytime curves where an epoch was trained."""
    tables = [_losses(comparison), _pairs(comparison), _anytime(comparison)]
    return [table for table in tables if table.rows or table.notes]


def _losses(comparison: Comparison) -> TextTable:
    objective, metrics = comparison.objective, comparison.test_metrics
    small = any(row.test_small for row in comparison.rows)
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
                _label(comparison, row.search, row.loss),
                _trial(comparison, row),
                NOTHING if row.search_value is None else f"{row.search_value:.4f}",
                spread(row.confirmed),
                spread(row.final),
                *([spread(row.test_small)] if small else []),
                *([spread((row.test or {}).get(name)) for name in metrics] or ["sealed"]),
            )
            for row in comparison.rows
        ),
        labels=2,
        notes=tuple(_notes(comparison)),
    )


def _label(comparison: Comparison, search: str | None, loss: str) -> str:
    return loss if len(comparison.searches) == 1 else f"{search or 'mean'}/{loss}"


def _trial(comparison: Comparison, row: Row) -> str:
    if row.role is Role.TUNED:
        if row.number is None:
            return "none finished"
        return "default is best" if row.number == 0 else f"{row.number}, tuned"
    (summary,) = [summary for summary in comparison.searches if summary.name == row.search]
    return "0, default clipped" if summary.losses[row.loss].default.clipped else "0, default"


def _notes(comparison: Comparison) -> Iterator[str]:
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            label = _label(comparison, summary.name, loss)
            tuned, trials = entry.confirmed or entry.best, entry.trials
            counts = f"{trials.complete} complete, {trials.pruned} pruned, {trials.failed} failed"
            yield f"{label}: {parameters(tuned.params) if tuned else 'no trial finished'} ({counts})"
            audited = entry.audit.sentence if entry.audit else None
            said = (entry.ended_early, entry.overtuned, audited, *(finding.sentence for finding in entry.diagnostics))
            for sentence in filter(None, said):
                yield f"{label}: {sentence}"
        if summary.noise:
            yield noise_text(summary.noise, comparison.objective)
    split = comparison.split
    yield f"split {split.digest[:12]}: {_classes(split)}; {comparison.openings}"
    yield from comparison.warnings
    yield (
        "search: one run, or the mean of equal ones; confirmed, final (validation of the trainings for the test): "
        f"mean ± sample deviation over seeds{' and folds' if split.folds else ''}; shrunk: towards the mean of all "
        "finalists, as the best of several is luck in part; test: with the 95 % interval "
        f"(Student's t{' over the seeds, each the mean of its folds' if split.folds else ''})"
    )


def _classes(split: SplitSummary) -> str:
    merged = f" (every {split.merge} as one)" if split.merge > 1 else ""
    validate = f" and validate in {split.folds} folds" if split.folds else f", {split.validation_classes} validate"
    return f"{split.train_classes} classes train{merged}{validate}, {split.test_classes} test"


def _pairs(comparison: Comparison) -> TextTable:
    pairs = comparison.pairs
    notes = list(comparison.left_out)
    if pairs:
        notes.append(f"{HOW} {len(pairs)} pair{'s' * (len(pairs) > 1)}")
    return TextTable(
        title=f"Differences of {pairs[0].metric} on the test classes" if pairs else "Differences on the test classes",
        header=("pair", "difference", "95 % interval", "p", "p (Holm)", ""),
        rows=tuple(
            (
                _pair_name(comparison, pair),
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


def _pair_name(comparison: Comparison, pair: Pair) -> str:
    """The two rows of a pair; a default is only ever paired with its own loss."""
    first, second = pair.first, pair.second
    other = "its default" if second.role is Role.DEFAULT else _label(comparison, second.search, second.loss)
    return f"{_label(comparison, first.search, first.loss)} − {other}"


def _anytime(comparison: Comparison) -> TextTable:
    curves = [(_label(comparison, curve.search, curve.loss), curve) for curve in comparison.anytime]
    return anytime_table(comparison.objective, curves, "{:.4f}".format)
