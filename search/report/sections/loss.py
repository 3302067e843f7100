"""Report section: the search of one loss."""

from collections.abc import Iterator, Mapping

from search.plan.stored import StoredSearch
from search.report.drawing import Section
from search.report.formats import parameters
from search.report.importances import MIN_TRIALS
from search.report.results import Summary
from search.report.sections.history import ends, history
from search.report.sections.learning_curves import learning_curves
from search.report.sections.parallel import importances, parallel
from search.report.sections.searched import DEFAULT, SearchedLoss, searched_loss
from search.report.sections.slices import MIN_TRIALS as CONTOUR_TRIALS, contours, slices
from search.report.text_table import NOTHING, TextTable
from search.selection import Selection
from spaces.space import Value, value_text

FIGURES = (history, learning_curves, ends, importances, slices, parallel, contours)


def loss_section(stored: StoredSearch, summary: Summary, loss: str) -> Section:
    """The section of ``loss``.

    Raises:
        Mistakes: the selection was changed after it was frozen.
    """
    searched = searched_loss(stored, summary, loss)
    path = stored.folder.selection
    reason = Selection.load(path).reasons.get(loss) if path.exists() else None
    if not searched.trials:
        return Section(name=searched.name, title=loss, missing=("No trial has begun yet.",))
    figures = [draw(searched) for draw in FIGURES]
    return Section(
        name=searched.name,
        title=loss,
        sentences=tuple(_sentences(searched, reason)),
        tables=(_table(searched),) if searched.axes else (),
        figures=tuple(figure for figure in figures if figure),
        missing=tuple(_missing(searched, {figure.name for figure in figures if figure})),
    )


def _sentences(searched: SearchedLoss, reason: str | None) -> Iterator[str]:
    entry, objective = searched.summary, searched.objective
    yield _choice(searched, reason)
    chosen, default = entry.confirmed, entry.default.confirmed
    if chosen and chosen.number != DEFAULT and default:
        yield (
            f"With fresh seeds the mean {objective} of the chosen configuration is {chosen.mean:.4f} "
            f"({chosen.seeds} seed{'s' if chosen.seeds > 1 else ''}), that of the default {default.mean:.4f} "
            f"({default.seeds})."
        )
    counts = entry.trials
    yield (
        f"{counts.complete} trials are complete, {counts.pruned} were pruned and {counts.failed} failed, in "
        f"{entry.epochs:,} epochs; {searched.pruning}."
    )
    yield from map(_sentence, entry.incomplete_seeds)
    if entry.ended_early:
        yield _sentence(entry.ended_early)
    if entry.overtuned:
        yield _sentence(entry.overtuned)
    if entry.audit:
        yield _sentence(entry.audit.sentence)
    for finding in entry.diagnostics:
        yield _sentence(finding.sentence)
    if searched.constants:
        yield f"Not searched and in no picture: {parameters(searched.constants)}."


def _choice(searched: SearchedLoss, reason: str | None) -> str:
    entry, objective = searched.summary, searched.objective
    default = "" if entry.default.value is None else f" (the default's is {entry.default.value:.4f})"
    if entry.confirmed:
        what = "The default was chosen" if entry.confirmed.number == DEFAULT else "A configuration was chosen"
        return f"{what}: {reason}." if reason else f"{what}: trial {entry.confirmed.number}."
    if entry.best:
        return f"Nothing is chosen yet; the best so far is trial {entry.best.number} with a {objective} of " + (
            f"{entry.best.value:.4f}{default}."
        )
    return "Nothing can be chosen: no trial is complete."


def _table(searched: SearchedLoss) -> TextTable:
    entry, params = searched.summary, searched.chosen_params
    notes = ["the default is the nearest value that the search allows"] if entry.default.clipped else []
    return TextTable(
        title="",
        header=("hyperparameter", "default", searched.chosen_word, "searched"),
        rows=tuple(
            (name, _cell(entry.default.params, name), _cell(params, name), axis.text)
            for name, axis in searched.axes.items()
        ),
        labels=1,
        notes=tuple(notes),
    )


def _cell(params: Mapping[str, Value], name: str) -> str:
    return value_text(params[name]) if name in params else NOTHING


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '?', '!')) else '.'}"


def _missing(searched: SearchedLoss, drawn: set[str]) -> Iterator[str]:
    """What cannot be shown, and why."""
    if not searched.axes:
        yield "It has no hyperparameter that varies: there is nothing to compare."
        return
    if not searched.valued:
        yield f"No trial has a value of {searched.objective} yet: there are no curves."
        return
    if len(searched.axes) > 1 and searched.importances is None:
        yield (
            f"Which hyperparameters matter takes {MIN_TRIALS} trials that reached the same rung; there are "
            f"{len(searched.valued)} with a value."
        )
    if len(searched.numeric) > 1 and f"{searched.name}-contours" not in drawn:
        yield (
            f"The values over two hyperparameters take {CONTOUR_TRIALS} trials that have both, and not all on one line."
        )
