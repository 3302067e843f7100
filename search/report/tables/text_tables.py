"""The comparison as tables of text, with everything that it says."""

from collections.abc import Iterator

from search.report.pairs.pairs_of import HOW
from search.report.results.comparison import Comparison
from search.report.results.loss_summary import LossSummary
from search.report.tables.anytime_table import anytime_table
from search.report.tables.formats import interval, not_different, parameters, spread, verdict
from search.report.tables.noise_text import noise_text
from search.report.tables.row_names import loss_label, pair_name, shown_rows, trial_name
from search.report.tables.text_table import NOTHING, TextTable, best_of


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
