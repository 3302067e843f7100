"""The comparison as tables of text and as CSV."""

import csv
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from search.difference import RowKey
from search.results.comparison import Comparison
from search.results.pairs import METHOD, Pair, difference_interval, not_different, p_value, verdict
from search.results.rows import (
    COLUMNS,
    Column,
    Row,
    SeedStatistics,
    difference_text,
    mean_of,
    parameters,
    shown_interval,
    spread_text,
)
from search.stages import UNTRAINED, WHITENED, Role
from search.text_table import NOTHING, TextTable
from trainables.common.errors import counted, listed
from trainables.metrics import is_bounded, score_text, split_subset, unit


def all_columns(comparison: Comparison) -> list[tuple[Column, str]]:
    """Return the columns, each with its metric; while the test is sealed, its column is that of the objective."""
    objective = comparison.objective
    metrics = comparison.test_metrics or (objective,)
    return [(column, metric) for column in COLUMNS for metric in column.metric_names(objective, metrics)]


def filled_columns(comparison: Comparison) -> list[tuple[Column, str]]:
    """Return the columns in which a row that is shown has an entry."""
    rows = shown_rows(comparison)
    return [
        (column, metric)
        for column, metric in all_columns(comparison)
        if any(column.entry(row, metric) is not None for row in rows)
    ]


# The comparison as CSV.

HEADER = (
    "search", "loss", "role", "trial", "against_search", "against_loss", "against_role", "metric", "stage", "mean",
    "std", "ci95_low", "ci95_high", "seeds", "p", "p_corrected", "earlier_openings",
)  # fmt: skip

Record = dict[str, str | int | float | None]
"""A line, by column; missing columns are empty."""


def as_csv(comparison: Comparison) -> str:
    """Return one number per line: a row's value at a stage, or a pair's difference; changed records come first."""
    text = io.StringIO()
    text.writelines(f"# {line}\n" for line in comparison.changed)
    writer = csv.DictWriter(text, HEADER, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_records(comparison))
    return text.getvalue()


def _records(comparison: Comparison) -> Iterator[Record]:
    columns = all_columns(comparison)
    for row in comparison.rows:
        earlier = comparison.earlier_openings.get(row.search)
        name: Record = {**row.key._asdict(), "trial": row.number, "earlier_openings": earlier}
        for column, metric in columns:
            entry = column.entry(row, metric)
            numbers: Record = {"mean": mean_of(entry)}
            if isinstance(entry, SeedStatistics):
                low, high = entry.ci95 or (None, None)
                numbers |= {"std": entry.std, "ci95_low": low, "ci95_high": high, "seeds": entry.seeds}
            if entry is not None:
                yield {**name, "metric": metric, "stage": column.key, **numbers}
    for pair in comparison.pairs:
        low, high = pair.ci95
        yield {
            **pair.first._asdict(),
            **{f"against_{name}": value for name, value in pair.second._asdict().items()},
            **pair.model_dump(include={"metric", "seeds", "p", "p_corrected"}),
            "stage": "test",
            "mean": pair.difference,
            "ci95_low": low,
            "ci95_high": high,
        }


# The whole comparison: ``holdout compare``, Markdown and LaTeX.


def text_tables(comparison: Comparison) -> list[TextTable]:
    """Return the answers, the table of the losses, and that of the pairs if there are any."""
    losses = replace(losses_table(comparison), notes=tuple(_notes(comparison)))
    tables = [_answers(comparison), losses, pairs_table(comparison)]
    return [table for table in tables if table.rows or table.notes]


def paper_tables(comparison: Comparison) -> list[TextTable]:
    """Return the tables of a paper: the test values of each row, in per cent where a metric is between 0 and 1; pairs.

    While the test is sealed there are no values.
    """
    losses, rows, metrics = losses_table(comparison), shown_rows(comparison), comparison.test_metrics

    def cell(row: Row, metric: str) -> str:
        found = (row.test or {}).get(metric)
        if found is None:
            return NOTHING
        scale, digits = unit(metric), 1 if unit(metric) > 1 else 4
        spread = f" ± {scale * found.std:.{digits}f}" if found.std else ""
        return f"{scale * found.mean:.{digits}f}{spread}"

    table = TextTable(
        title=f"{losses.title}; test values, mean ± sample deviation over seeds",
        header=("loss", "configuration", *map(printed_metric, metrics)),
        rows=tuple(
            (
                row_loss_label(comparison, row),
                row.name if row.role is Role.BASELINE else row.role if row.number else "default",
                *(cell(row, metric) for metric in metrics),
            )
            for row in rows
        ),
        labels=2,
        notes=(*(line for answer in comparison.answers for line in answer.lines[:-1]), *_notes(comparison)),
    )
    pairs = pairs_table(comparison)
    if comparison.pairs:
        metric = printed_metric(comparison.pairs[0].metric)
        pairs = replace(pairs, title=f"{table.title.partition(':')[0]}, differences of {metric}")
    return [_text(comparison.changed), table, pairs]


def printed_metric(name: str) -> str:
    """Return the name of a metric as papers print it.

    >>> [printed_metric(name) for name in ("map_at_r", "recall_at_1", "nmi-small", "r_precision", "dists_intra")]
    ['MAP@R', 'Recall@1', 'NMI-small', 'R-Precision', 'dists_intra']
    """
    metric, part = split_subset(name)
    family, at, k = metric.partition("_at_")
    known = {"map": "MAP", "ndcg": "nDCG", "nmi": "NMI", "f1": "F1", "r_precision": "R-Precision"}
    shown = known.get(family, family.capitalize() if at else metric) + (f"@{k.upper()}" if at else "")
    return f"{shown}-{part}" if part else shown


def _answers(comparison: Comparison) -> TextTable:
    several = len(comparison.searches) > 1
    lines = (line for answer in comparison.answers for line in (*[f"{answer.search}:"] * several, *answer.lines))
    return _text([*comparison.changed, *lines])


def _text(notes: Sequence[str]) -> TextTable:
    return TextTable(header=(), rows=(), notes=tuple(notes))


def losses_table(comparison: Comparison) -> TextTable:
    """Return the values of every row at each stage."""
    filled = filled_columns(comparison)
    return _losses_table(comparison, [of for of in all_columns(comparison) if of[1] or of in filled], {}, long=True)


def _losses_table(
    comparison: Comparison,
    columns: Sequence[tuple[Column, str]],
    gains: Mapping[str, Mapping[RowKey, str]],
    *,
    long: bool = False,
) -> TextTable:
    """Return ``columns`` and ``gains`` of all rows, below those of a random ranking if its values are known."""
    is_sealed = not (comparison.test_metrics or comparison.changed)
    names = ", ".join(summary.name for summary in comparison.searches)
    baselines = any(summary.baselines for summary in comparison.searches)
    by_chance = [comparison.chance.get(metric) if column.key == "test" else None for column, metric in columns]

    def text(row: Row, column: Column, metric: str) -> str:
        if is_sealed and column.metrics == "test":
            return "sealed"
        entry = column.entry(row, metric)
        if not isinstance(entry, SeedStatistics):
            return score_text(metric, entry)
        text = spread_text(metric, entry.mean, entry.std)
        return f"{text}\n{shown_interval(metric, entry.ci95)}" if long and entry.ci95 else text

    rows = [
        (
            row_loss_label(comparison, row),
            row.name,
            *(text(row, *column) for column in columns),
            *(of_role.get(row.key, NOTHING) for of_role in gains.values()),
        )
        for row in shown_rows(comparison)
    ]
    if any(value is not None for value in by_chance):
        values = (score_text(metric, value) for (_, metric), value in zip(columns, by_chance, strict=True))
        rows.insert(0, ("chance", NOTHING, *values, *[NOTHING] * len(gains)))
    headers = (f"{metric}\n{column.key.replace('_', ' ')}".strip() for column, metric in columns)
    return TextTable(
        title=f"{names}: {'networks without training, and ' * baselines}losses, default and tuned",
        header=("loss", "trial", *headers, *gains),
        rows=tuple(rows),
        labels=2,
    )


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
    yield from baselines_sentences(comparison)
    yield split_sentence(comparison)
    yield from data_sentences(comparison)
    yield columns_sentence(comparison)


def data_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the openings and the warnings, without a full stop."""
    yield from filter(None, (comparison.openings, comparison.split.luck, *comparison.warnings))


def columns_sentence(comparison: Comparison) -> str:
    """Return what the columns of the table of the losses are, without a full stop."""
    split = comparison.split
    confirmed = "on the validation classes"
    if split.halves:
        confirmed = "on halves: each half of the training classes is validated by a model of the other half"
    return (
        f"{units_note((comparison.objective, *comparison.test_metrics))}search: the value of that trial; confirmed "
        f"({confirmed}) and final (validation of the trainings for the test): mean ± sample deviation over "
        f"seeds{' and folds' if split.folds else ''}; confirmed is optimistic for a tuned row, the best of its "
        "finalists, and final is optimistic too: only its seeds are fresh; test: with the 95 % interval of the "
        f"row's mean (Student's t{' over the seeds, each the mean of its folds' if split.folds else ''}"
        ", on the logit scale for metrics between 0 and 1), while rows are compared by the intervals of differences"
        "; values in galleries of different sizes, as of validation and test, are not comparable"
    )


def units_note(metrics: Collection[str]) -> str:
    """Return the unit of values of ``metrics`` as the beginning of a note."""
    others = [metric for metric in dict.fromkeys(metrics) if not is_bounded(metric)]
    if len(others) == len({*metrics}):
        return ""
    return f"in per cent{f' ({listed(others)} as measured)' if others else ''}; "


def baselines_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield what the rows without training are, if there are any."""
    if any(summary.baselines for summary in comparison.searches):
        yield (
            f"{UNTRAINED}: the pooled features of the initial weights, or the given embeddings; {WHITENED}: the same "
            "after a principal component analysis with whitening to the size of the embeddings, fitted to the training "
            "classes; neither has seeds"
        )


_RULES = {
    "parts": "the test's queries are ranked against its gallery only",
    "cameras": "a query ignores the images of its class by its own camera",
}
"""How queries are ranked, by the mark of the data set."""


def split_sentence(comparison: Comparison) -> str:
    """Return the numbers of training, validation and test classes, and the rules of the data set."""
    split = comparison.split
    merged = f" (every {split.merge} as one)" if split.merge > 1 else ""
    noise = f" with {split.label_noise:.0%} wrong labels" if split.label_noise else ""
    validate = f" and validate in {split.folds} folds" if split.folds else f", {split.validation_classes} validate"
    among = " among half of the training images too" if split.training_half else ""
    classes = f"{split.train_classes} classes train{merged}{noise}{validate}{among}, {split.test_classes} test"
    rules = (_RULES[mark] for mark in split.marks if mark in _RULES)
    return "; ".join((f"split {split.digest[:12]}: {classes}", *rules))


def pairs_table(comparison: Comparison) -> TextTable:
    """Return the difference of each pair, and the method of the test."""
    pairs = comparison.pairs
    notes = [*comparison.left_out, *not_different(pairs)]
    if pairs:
        notes.append(f"{METHOD} {counted(len(pairs), 'pair')} (Bonferroni)")
    return differences_table(pairs, partial(pair_name, comparison), _corrected(pairs), notes)


def differences_table(
    pairs: Sequence[Pair], name_of: Callable[[Pair], str], corrected: str, notes: Sequence[str]
) -> TextTable:
    """Return the difference of each pair; ``corrected`` says what its interval is corrected for."""
    unit = ", in points" if pairs and is_bounded(pairs[0].metric) else ""
    return TextTable(
        title=f"Differences{f' of {pairs[0].metric}' if pairs else ''} on the test classes{unit}",
        header=("pair", "difference", f"95 % interval\n{corrected}", "p alone", "p (corrected)", ""),
        rows=tuple(
            (
                name_of(pair),
                difference_text(pair.metric, pair.difference),
                difference_interval(pair),
                p_value(pair.p),
                p_value(pair.p_corrected),
                verdict(pair),
            )
            for pair in pairs
        ),
        notes=tuple(notes),
    )


def _corrected(pairs: Sequence[Pair]) -> str:
    return f"corrected for {counted(len(pairs), 'pair')}"


# The comparison on one screen, printed at the end of a search and at the top of its report.


def headline_tables(comparison: Comparison) -> list[TextTable]:
    """Return the answers, the losses with test values and gains, and the most important notes."""
    names = " ".join(summary.name for summary in comparison.searches)
    more = f"`holdout compare {names}` shows everything"
    notes = [*headline_sentences(comparison), more]
    tables = [_answers(comparison), headline_losses(comparison), _text(notes)]
    return [table for table in tables if table.rows or table.notes]


def headline_losses(comparison: Comparison) -> TextTable:
    """Return the values of the last stage, with the differences from the default and from no training."""
    filled = filled_columns(comparison)
    present = {column.key for column, _ in filled}
    last = next((key for key in ("test", "confirmed", "search") if key in present), "")
    columns = [entry for entry in filled if entry[0].key == last]
    points = "\npoints" if comparison.pairs and is_bounded(comparison.pairs[0].metric) else ""
    gains = {f"{name}{points}": of_role for name, role in GAINS.items() if (of_role := gains_of(comparison, role))}
    table = _losses_table(comparison, columns, gains)
    return replace(
        table,
        title=table.title if len(comparison.searches) > 1 else "",
        spare=tuple(
            position
            for position, (column, metric) in enumerate(columns, 2)
            if column.metrics == "test" and metric in comparison.test_metrics[1:]
        ),
    )


GAINS = {"minus default": Role.DEFAULT, "minus no training": Role.BASELINE}


def gains_of(comparison: Comparison, role: Role) -> dict[RowKey, str]:
    """Return the difference of each row from that of ``role``, with its interval."""
    return {
        pair.first: f"{difference_text(pair.metric, pair.difference)} {difference_interval(pair)}"
        for pair in comparison.pairs
        if pair.second.role is role
    }


def headline_sentences(comparison: Comparison) -> Iterator[str]:
    """Yield the most important notes, without a full stop."""
    split, pairs = comparison.split, comparison.pairs
    units = units_note((comparison.objective, *comparison.test_metrics))
    spread = f"{units}± sample deviation over seeds{' and folds' if split.folds else ''}"
    corrected = "" if comparison.answers else f", {_corrected(pairs)}"  # which the answer says
    yield f"{spread}; 95 % intervals{corrected}" if pairs else spread
    yield from comparison.left_out
    yield from data_sentences(comparison)
    for summary in comparison.searches:
        for loss, entry in summary.losses.items():
            for text in entry.incomplete_seeds:
                yield f"{loss_label(comparison, summary.name, loss)}: {text}"


def row_loss_label(comparison: Comparison, row: Row) -> str:
    """Return the loss of a row, with its searches unless all of them have this row."""
    searches = [other.search for other in comparison.rows if _content(other) == _content(row)]
    return row.loss if len(searches) == len(comparison.searches) else f"{', '.join(searches)}/{row.loss}"


def row_label(comparison: Comparison, row: Row) -> str:
    """Return the row's loss, and "tuned" or, also for a chosen default, "default"; or the name of a baseline."""
    label = row_loss_label(comparison, row)
    return label if row.role is Role.BASELINE else f"{label}, {Role.DEFAULT if row.number == 0 else row.role}"


def _content(row: Row) -> str:
    return row.model_dump_json(exclude={"search"})


def loss_label(comparison: Comparison, search: str, loss: str) -> str:
    """Return a loss's name, with its search if there are several."""
    return loss if len(comparison.searches) == 1 else f"{search}/{loss}"


def shown_rows(comparison: Comparison) -> list[Row]:
    """Return the baselines, and the default and the tuned row of each loss; only the latter if both are the same.

    Of rows that are equal in several searches, such as networks without training, there is one.
    """
    same = {(row.search, row.loss) for row in comparison.rows if row.role is Role.TUNED and row.number == 0}
    rows = [row for row in comparison.rows if row.role is Role.TUNED or (row.search, row.loss) not in same]
    return list({_content(row): row for row in reversed(rows)}.values())[::-1]


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """Return the two rows of a pair; a default is only paired with its own loss."""
    first, second = pair.first, pair.second
    other = "its default" if second.role is Role.DEFAULT else loss_label(comparison, second.search, second.loss)
    return f"{loss_label(comparison, first.search, first.loss)} − {other}"
