"""The answer of a report, on hand-written records of searches: what the terminal shows at the end of a search."""

from pathlib import Path

import pytest
from support.made_search import Means, made_search
from support.summaries import made_loss, made_summary

from search.plan.runs import RunFolder
from search.report.comparison import compare
from search.report.comparison_tables import headline_tables, text_tables
from search.report.drawing import Plot
from search.report.formats import sentence
from search.report.results import Comparison, stored_summary
from search.report.sections.answer import answer, anytime_curves, outcome, pair_matrix


def compared(runs: Path, means: Means) -> tuple[Comparison, RunFolder]:
    made_search(runs, "one", means)
    folder = RunFolder(runs, "one")
    return compare([folder], [stored_summary(folder)]), folder


@pytest.mark.parametrize("means", [{"mpa": (0.5, 0.7), "pnp": (0.3, 0.35)}, {"mpa": (0.5, 0.5)}])
def test_the_answer_is_the_headline_of_the_terminal(tmp_path: Path, means: Means) -> None:
    comparison, folder = compared(tmp_path, means)
    shown = answer(comparison, [folder])
    lines, losses, notes = headline_tables(comparison)
    assert shown.lead == lines.notes
    assert shown.results == (losses,)
    assert [*shown.remarks] == [sentence(note) for note in notes.notes[:-1]], "all but the line on another command"
    assert [figure.name for figure in shown.figures] == ["test-map_at_r"], "the test leads"
    assert [row[1] for row in outcome(comparison, [folder]).tables[0].rows] == ["one"]
    assert not shown.pending


def test_the_comparison_has_the_tables_of_the_command(tmp_path: Path) -> None:
    comparison, folder = compared(tmp_path, {"mpa": (0.5, 0.6), "pnp": (0.3, 0.35)})
    _, losses, pairs = text_tables(comparison)
    shown = outcome(comparison, [folder])
    assert shown.results[0].rows == losses.rows
    matrix, *tests, search = (*shown.figures[:1], *answer(comparison, [folder]).figures, *shown.figures[1:])
    assert (matrix.table, search.name) == (pairs, "anytime")
    names = {f"{row[0]}, {'default' if 'default' in row[1] else 'tuned'}": row[-2:] for row in losses.rows}
    for figure in tests:
        column = ["test-map_at_r", "test-recall_at_1"].index(figure.name)
        assert {row[0]: f"{row[1]} ± {row[2]}\n{row[3]}" for row in figure.table.rows} == {
            name: cells[column] for name, cells in names.items()
        }


def test_a_pair_of_losses_is_in_both_rows_of_the_matrix(tmp_path: Path) -> None:
    losses = ["mpa", "margin", "pnp"]
    comparison, _ = compared(tmp_path, {loss: (0.3, 0.3 + number / 10) for number, loss in enumerate(losses)})
    pairs = tuple(pair for pair in comparison.pairs if pair.first.loss != pair.second.loss)
    figure = pair_matrix(comparison.model_copy(update={"pairs": pairs[::-1]}))
    assert figure is not None
    assert isinstance(figure.picture, Plot)
    (heat,) = figure.picture.figure["data"]
    assert heat["x"] == heat["y"] == losses, "in the order of the table"
    by_pair = {(row, column): text for row, texts in zip(losses, heat["text"]) for column, text in zip(losses, texts)}
    for pair in pairs:
        first, second = pair.first.loss, pair.second.loss
        sign = "≈" if not pair.differ else "↑" if pair.difference > 0 else "↓"
        opposite = {"↑": "↓", "↓": "↑", "≈": "≈"}[sign]
        assert by_pair.pop((first, second)) == f"{100 * pair.difference:+.1f} {sign}"
        assert by_pair.pop((second, first)) == f"{-100 * pair.difference:+.1f} {opposite}"
    assert {*by_pair.values()} == {""}


def test_the_picture_of_the_answer_is_that_of_the_summary(tmp_path: Path) -> None:
    comparison, _ = compared(tmp_path, {"mpa": (0.5, 0.7), "pnp": (0.3, 0.35)})
    figure = anytime_curves(comparison.searches)
    assert figure is not None
    assert isinstance(figure.picture, Plot)
    lines = {trace["name"]: [*zip(trace["x"], trace["y"])] for trace in figure.picture.figure["data"]}
    axes = {trace["name"]: trace.get("yaxis", "y") for trace in figure.picture.figure["data"]}
    for loss, entry in comparison.searches[0].losses.items():
        steps = [(step.epochs, step.value) for step in entry.anytime]
        assert lines.pop(loss) == [*steps, (entry.epochs, steps[-1][1])]
        for row in (entry.default, entry.tuned):
            assert row.confirmed is not None
            assert lines.pop(f"{loss}, {row.role}") == [(loss, pytest.approx(row.confirmed.mean, rel=1e-4))]
            assert (axes[loss], axes[f"{loss}, {row.role}"]) == ("y", "y2"), "values of other classes, apart"
    assert not lines
    assert figure.finding.startswith("mpa has the highest value so far, 0.7000 on 2 classes")


def test_before_a_value_there_is_no_picture() -> None:
    assert anytime_curves([made_summary({"mpa": made_loss()})]) is None
