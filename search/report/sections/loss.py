"""Report section on the search of one loss."""

from collections.abc import Iterator

from search.plan.stored import StoredSearch
from search.report.drawing import Section
from search.report.formats import parameters, sentence
from search.report.results import Summary
from search.report.rows import SeedStatistics
from search.report.sections.loss_figures import FIGURES
from search.report.sections.searched import DEFAULT, MIN_TRIALS, SearchedLoss, param_text, range_text, searched_loss
from search.text_table import TextTable
from trainables.errors import counted


def loss_section(stored: StoredSearch, summary: Summary, loss: str) -> Section:
    """Return the section of ``loss``."""
    searched = searched_loss(stored, summary, loss)
    if not searched.trials:
        return Section(name=searched.name, title=loss, pending=("No trial has started.",), loss=loss)
    figures = [draw(searched) for draw in FIGURES]
    without_axes = "There are no figures by hyperparameter: this loss has none that varies."
    return Section(
        name=searched.name,
        title=loss,
        results=(_table(searched),) if searched.varying else (),
        sentences=tuple(_sentences(searched)),
        figures=tuple(figure for figure in figures if figure),
        remarks=(*_remarks(searched), *([] if searched.varying else [without_axes])),
        pending=tuple(_pending(searched)),
        loss=loss,
    )


def _sentences(searched: SearchedLoss) -> Iterator[str]:
    entry, objective = searched.summary, searched.objective
    yield _choice(searched)
    chosen, default = entry.tuned.confirmed, entry.default.confirmed
    if chosen and entry.tuned.number != DEFAULT and default:
        yield (
            f"Mean {objective} with fresh seeds: {_mean(chosen)} for the chosen configuration, {_mean(default)} for "
            "the default."
        )
    counts = entry.trials
    yield (
        f"{counted(counts.complete, 'trial')} completed, {counts.pruned} pruned and {counts.failed} failed in "
        f"{counted(entry.epochs, 'epoch')}; {searched.pruning}."
    )


def _remarks(searched: SearchedLoss) -> Iterator[str]:
    yield from map(sentence, searched.summary.remarks)
    if searched.constants:
        yield f"Fixed hyperparameters: {parameters(searched.constants)}."


def _mean(entry: SeedStatistics) -> str:
    return f"{entry.mean:.4f} ({counted(entry.seeds, 'seed')})"


def _choice(searched: SearchedLoss) -> str:
    entry, objective = searched.summary, searched.objective
    if entry.chosen:
        what = "The default was chosen" if entry.chosen.number == DEFAULT else "A configuration was chosen"
        return f"{what}: {entry.choice or f'trial {entry.chosen.number}'}."
    if entry.best:
        of_default = entry.default.search_value
        default = "" if of_default is None else f" (default: {of_default:.4f})"
        return (
            f"Nothing is chosen yet; the best trial so far is {entry.best.number} with {objective} "
            f"{entry.best.value:.4f}{default}."
        )
    return "Nothing can be chosen: no trial is complete."


def _table(searched: SearchedLoss) -> TextTable:
    entry, params = searched.summary, searched.chosen_params
    notes = ["the default is clipped to the nearest value in the search range"] if entry.default.clipped else []
    return TextTable(
        title="",
        header=("hyperparameter", "default", searched.chosen_word, "search range"),
        rows=tuple(
            (name, param_text(entry.default.params or {}, name), param_text(params, name), range_text(distribution))
            for name, distribution in searched.varying.items()
        ),
        labels=1,
        notes=tuple(notes),
    )


def _pending(searched: SearchedLoss) -> Iterator[str]:
    """Yield what cannot be shown yet, and why."""
    if not searched.valued:
        yield f"Learning curves: no trial has a value of {searched.objective}."
        return
    if len(searched.varying) > 1 and searched.importances is None:
        yield (
            f"Importances: they need {MIN_TRIALS} trials at the same rung, and "
            f"{counted(len(searched.valued), 'trial')} {'has' if len(searched.valued) == 1 else 'have'} a value."
        )
