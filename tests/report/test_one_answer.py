"""The answer of a search: four lines that every output shows alike, what they say, and its pictures."""

import json
import re
from pathlib import Path

from support.commands import holdout_here, plain
from support.made_search import made_search
from support.summaries import made_loss, made_summary

import holdout
from search.driver.synchronise import search_run
from search.plan.runs import RunFolder
from search.report.comparison import compare_stored
from search.report.comparison_tables import headline_tables, text_tables
from search.report.document import environment
from search.report.drawing import Plot
from search.report.results import Answer, Comparison
from search.report.sections.answer import answer as section, anytime_curves, pair_matrix

YES, NO = {"mpa": (0.5, 0.7), "pnp": (0.3, 0.35)}, {"mpa": (0.7, 0.5)}


def compared(runs: Path, name: str) -> Comparison:
    return compare_stored([RunFolder(runs, name)])


def changed(runs: Path, name: str, **fields: object) -> Answer:
    """Return the answer after ``fields`` of the summary were replaced."""
    path = runs / name / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    (answer,) = compared(runs, name).answers
    return answer


def test_every_output_has_the_same_four_lines(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES)
    comparison = compared(tmp_path, "one")
    (answer,) = comparison.answers
    assert len(answer.lines) == 4
    assert str(holdout.open("one", runs=tmp_path).answer) == "\n".join(answer.lines)
    terminal = " ".join(plain(holdout_here("compare", "one", "--runs", tmp_path).stdout).split())
    assert terminal.startswith(" ".join(answer.lines))
    shown = json.loads(holdout_here("compare", "one", "--runs", tmp_path, "--json").stdout)
    assert shown["answers"] == [answer.model_dump()]
    run = search_run(comparison, RunFolder(tmp_path, "one"), "What it is.")
    assert run.description.startswith("\n\n".join(answer.lines))
    assert run.description.endswith("What it is.")
    for row in comparison.rows:
        assert row.test is not None
        assert f"| {row.test['map_at_r'].mean:.4f}" in run.description
    assert {path.name for path in run.files} == {"search.yaml", "split.json"}
    assert set(run.texts) == {"comparison.md", "comparison.csv"}
    assert "<br>" not in run.texts["comparison.md"]


def test_a_default_is_recommended_with_its_hyperparameters(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES)
    recommended = {"loss": "mpa", "number": 0, "basis": "chosen on halves"}
    losses = json.loads((tmp_path / "one" / "summary.json").read_text())["losses"]
    losses["mpa"]["confirmed"] |= {"number": 0, "params": {"x": 1}}
    answer = changed(tmp_path, "one", recommended=recommended, losses=losses)
    assert answer.recommended == "Recommended: mpa with its default x=1 (chosen on halves)."
    assert answer.better_than_default == "Better than its default: it is the default."
    assert answer.better_than_untrained == "Better than the untrained network: nothing was pretrained."
    rows = holdout.open("one", runs=tmp_path).comparison().to_frame()
    assert rows[rows.loss == "mpa"].role.tolist() == ["default"], "tuned names nothing that is a default"


def test_a_network_without_training_may_be_recommended(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES, tested=False)
    entry = {"validation": {"map_at_r": 0.2}}
    recommended = {"loss": "whitened", "number": None, "basis": "no training is better"}
    answer = changed(tmp_path, "one", recommended=recommended, untrained=entry, whitened=entry)
    assert answer.recommended == "Recommended: the whitened network (no training is better)."
    assert answer.better_than_default.endswith("it has none.")
    assert answer.better_than_untrained.endswith("not tested yet.")


def test_before_the_test_the_next_step_opens_it(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES, tested=False)
    (answer,) = compared(tmp_path, "one").answers
    assert answer.better_than_default == "Better than its default: not tested yet."
    assert answer.next == "Next: `holdout test one` opens the test classes."


def test_rows_that_two_searches_share_are_shown_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made_search(tmp_path, name, YES)
    made_search(tmp_path, "three", NO)
    folders = [RunFolder(tmp_path, name) for name in ("one", "two")]
    comparison = compare_stored(folders)
    names = [(loss, role) for loss in YES for role in ("0, default", "7, tuned")]
    for tables in (text_tables, headline_tables):
        assert [row[:2] for row in tables(comparison)[1].rows] == names
    folders.append(RunFolder(tmp_path, "three"))
    comparison = compare_stored(folders)
    assert [row[0] for row in text_tables(comparison)[1].rows] == ["one, two/mpa"] * 2 + ["one, two/pnp"] * 2 + [
        "three/mpa"
    ] * 2


def test_changed_summaries_and_scores_are_told(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES)
    assert not compared(tmp_path, "one").warnings
    path = tmp_path / "one" / "test.json"
    path.write_text((scores := path.read_text()).replace('"overlap": 0', '"overlap": 1'))
    assert "one: test.json was changed" in compared(tmp_path, "one").warnings[0]
    path.write_text(scores)
    losses = json.loads((tmp_path / "one" / "summary.json").read_text())["losses"]
    losses["mpa"]["confirmed"]["params"]["x"] = 3
    changed(tmp_path, "one", losses=losses)
    said = "one: summary.json was changed after it was written: the digests differ (`holdout verify one`)"
    assert compared(tmp_path, "one").warnings == (said,)
    assert said in " ".join(plain(holdout_here("compare", "one", "--runs", tmp_path).stdout).split())


def test_the_answer_of_three_losses_is_short(tmp_path: Path) -> None:
    made_search(tmp_path, "three", {"proxy_anchor": (0.3, 0.6), "mpa": (0.5, 0.5), "pnp": (0.4, 0.5)})
    comparison, folder = compared(tmp_path, "three"), RunFolder(tmp_path, "three")
    macro = environment().get_template("section.html").module.section  # type: ignore[attr-defined]
    html = re.sub(r"<script.*?</script>", "", str(macro(section(comparison, [folder]))), flags=re.DOTALL)
    on_screen = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    assert len(re.sub(r"<[^>]+>", " ", on_screen).split()) <= 250


# The pictures of the answer.


def test_a_pair_of_losses_is_in_both_rows_of_the_matrix(tmp_path: Path) -> None:
    losses = ["mpa", "margin", "pnp"]
    made_search(tmp_path, "one", {loss: (0.3, 0.3 + number / 10) for number, loss in enumerate(losses)})
    comparison = compared(tmp_path, "one")
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
    made_search(tmp_path, "one", YES)
    comparison = compared(tmp_path, "one")
    figure = anytime_curves(comparison.searches)
    assert figure is not None
    assert isinstance(figure.picture, Plot)
    lines = {trace["name"]: [*zip(trace["x"], trace["y"])] for trace in figure.picture.figure["data"]}
    for loss, entry in comparison.searches[0].losses.items():
        steps = [(step.epochs, step.value) for step in entry.anytime]
        assert lines.pop(loss) == [*steps, (entry.epochs, steps[-1][1])]
    assert not lines
    assert figure.finding.startswith("mpa has the highest value so far, 0.7000 on 2 classes")


def test_before_a_value_there_is_no_picture() -> None:
    assert anytime_curves([made_summary({"mpa": made_loss()})]) is None
