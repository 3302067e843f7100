"""One name, one number, one answer: results are the same wherever they are shown, and no verdict contradicts its
interval."""

import csv
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.commands import holdout_here, plain
from support.driving import train_side_by_side
from support.figures import plot_of
from support.made_search import compared, made_search

import holdout
from search.driver.choice import freeze
from search.driver.finish import write_summary
from search.driver.stages import confirm_stage, search_stage
from search.driver.synchronise import loss_run, search_run
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.status import status_of, trial_rows
from search.records.writable import WritableRecords
from search.results.answer import Answer
from search.results.comparison import Comparison
from search.results.pairs import difference_interval, p_value, verdict
from search.show.comparison_tables import as_csv, headline_tables, text_tables
from search.show.sections.answer import answer as section, anytime_curves, outcome, pair_matrix
from search.stages import Role, Stage
from search.study.trial_queue import TrialQueue

# The search and its confirmations, driven with drawn values; few params, so some are proposed more than once.


@pytest.mark.parametrize("chosen", [False, True])
def test_the_values_of_a_search_are_the_same_everywhere(opened: Callable[..., WritableRecords], chosen: bool) -> None:
    search = opened(
        losses=["pnp"],
        space={"pnp": {"variant": "Ds", "temperature": [0.01, 0.02, 0.05, 0.1]}},
        search={"trials": 12, "sampler": "random"},
        training={"epochs": 8, "batch_size": 20, "images_per_class": 5, "image_size": 16},
        selection={"finalists": 2, "seeds": 2},
    )
    stages = (search_stage, confirm_stage) if chosen else (search_stage,)
    generator = random.Random(0)
    train_side_by_side(
        TrialQueue(stage(search) for stage in stages), 3, lambda job, epoch: round(generator.random(), 3)
    )
    if chosen:
        freeze(search)
    summary = write_summary(search)
    folder, trials = search.folder, search.trials("pnp", Stage.SEARCH)
    stored = Records(folder)
    comparison = compared(folder.runs, folder.name)
    entry = summary.losses["pnp"]
    assert entry.best is not None
    assert len({str(trial.params) for trial in trials}) < len(trials), "no configuration was proposed twice"

    # the leading trial
    best = entry.best.value
    (status,) = [row for row in status_of(stored).studies if row.stage is Stage.SEARCH]
    assert best == status.best == max(trial.value for trial in trials if trial.state.name == "COMPLETE")
    assert best == entry.anytime[-1].value
    (curve,) = plot_of(anytime_curves([summary]))["data"]
    steps = [(step.epochs, pytest.approx(100 * step.value, rel=1e-4)) for step in entry.anytime]
    assert [*zip(curve["x"], curve["y"])] == [*steps, (entry.epochs, steps[-1][1])]

    # the search value of a row is the value of the trial that it names
    rows = {row.role: row for row in comparison.rows}
    listed = {row.number: row.value for row in trial_rows(trials)}
    for row in rows.values():
        if row.search_value is None:
            assert row.number is not None
            assert trials[row.number].state.name != "COMPLETE"
        else:
            assert row.search_value == listed[row.number]
    if not chosen:
        assert (rows[Role.TUNED].number, rows[Role.TUNED].search_value) == (entry.best.number, best)
    run = loss_run(comparison, "pnp")
    assert run.metrics.get("search/map_at_r") == rows[Role.TUNED].search_value
    assert run.metrics.get("default/search_map_at_r") == rows[Role.DEFAULT].search_value
    frame = comparison.to_frame().set_index("role")

    def role_of(role: str) -> str:
        """Return the role in the data frame, in which a chosen default is one line."""
        return "default" if rows[Role.TUNED].number == 0 else role

    for record_ in csv.DictReader(io.StringIO(as_csv(comparison))):
        if record_["stage"] == "search":
            assert float(record_["mean"]) == rows[Role(record_["role"])].search_value
            assert float(record_["mean"]) == frame.loc[role_of(record_["role"]), "search_value"]

    # confirmed values
    if chosen:
        confirmed = rows[Role.TUNED].confirmed
        assert confirmed is not None
        table = text_tables(comparison)[1]
        cell = next(row for row in table.rows if row[1] == rows[Role.TUNED].name)[3]
        assert cell == f"{100 * confirmed.mean:.2f} ± {100 * confirmed.std:.2f}"
        assert run.metrics["confirmed/map_at_r"] == confirmed.mean == frame.loc[role_of("tuned"), "confirmed"]
    headline = headline_tables(comparison)[1 if chosen else 0]
    value = rows[Role.TUNED].confirmed.mean if chosen else best
    assert any(f"{100 * value:.2f}" in cell for row in headline.rows for cell in row)
    assert section(comparison).results[0] == headline


# The test: scores drawn at random, with differences around what can be detected.


def drawn(runs: Path, draw: int) -> Comparison:
    generator = np.random.default_rng(draw)
    spread = generator.choice([0.005, 0.02, 0.1])
    losses = ["pnp", "mpa", "triplet", "margin"][: generator.integers(1, 5)]
    means = {loss: tuple(0.5 + generator.normal(0, spread, 2)) for loss in losses}
    made_search(runs, "drawn", means, seeds=tuple(range(11, 11 + int(generator.integers(2, 5)))))
    return compared(runs, "drawn")


@pytest.mark.parametrize("draw", range(3))
def test_the_differences_are_the_same_everywhere(tmp_path: Path, draw: int) -> None:
    comparison = drawn(tmp_path, draw)
    rows = {row.key: row for row in comparison.rows}
    whole = {row[0]: row[1:] for row in text_tables(comparison)[2].rows}
    gains = [cell for row in headline_tables(comparison)[1].rows for cell in row if "[" in cell]
    shown = outcome(comparison, [Records(RunFolder(tmp_path, "drawn"))])
    assert shown.results[0].rows == text_tables(comparison)[1].rows
    assert shown.figures[0].table == text_tables(comparison)[2]
    assert len(comparison.pairs) == len(whole)
    records = [entry for entry in csv.DictReader(io.StringIO(as_csv(comparison))) if entry["against_loss"]]
    for pair, cells, found in zip(comparison.pairs, whole.values(), records, strict=True):
        first, second = rows[pair.first].test, rows[pair.second].test
        assert first is not None
        assert second is not None
        assert pair.difference == pytest.approx(first["map_at_r"].mean - second["map_at_r"].mean, abs=1e-12)
        low, high = pair.ci95
        assert pair.differ == (not low <= 0 <= high) == (pair.p_corrected <= 0.05), "a verdict contradicts its interval"
        assert cells == (
            f"{100 * pair.difference:+.1f}", difference_interval(pair), p_value(pair.p), p_value(pair.p_corrected),
            verdict(pair),
        )  # fmt: skip
        shown_low, shown_high = map(float, cells[1].strip("[]").split(", "))
        assert (shown_low, shown_high) == pytest.approx((100 * low, 100 * high), abs=0.051)
        assert bool(cells[-1]) == (not shown_low <= 0 <= shown_high) == (float(cells[3].removeprefix("< ")) <= 0.05)
        assert (float(found["ci95_low"]), float(found["ci95_high"])) == pair.ci95
        assert float(found["p_corrected"]) == pair.p_corrected
        name = f"holdout.pair.{pair.first.loss}.{pair.first.role}.{pair.second.loss}.{pair.second.role}"
        tag = loss_run(comparison, pair.first.loss).tags[name]
        assert tag.startswith(f"{cells[0]} points {cells[1]}, p {cells[3]} ")
        assert tag.endswith(verdict(pair) or "no significant difference")
    assert gains == [f"{cells[0]} {cells[1]}" for name, cells in whole.items() if "its default" in name]
    (of_recommended,) = (
        pair
        for pair in comparison.pairs
        if pair.first[1:] == ("pnp", "tuned") and pair.second[1:] == ("pnp", "default")
    )
    cells = [*whole.values()][comparison.pairs.index(of_recommended)]
    word = "not shown" if not of_recommended.differ else "yes" if of_recommended.difference > 0 else "no"
    corrected = f"(corrected for {len(records)} pair{'s' * (len(records) > 1)})"
    assert comparison.answers[0].better_than_default == (
        f"Better than its default: {word}, {cells[0]} points {cells[1]} by map_at_r on the 30 test classes {corrected}."
    )


# The answer of a search: lines that every output shows alike, what they say, and its pictures.

YES, NO = {"mpa": (0.5, 0.7), "pnp": (0.3, 0.35)}, {"mpa": (0.7, 0.5)}


def changed(runs: Path, name: str, **fields: object) -> Answer:
    """Return the answer after ``fields`` of the summary were replaced."""
    path = runs / name / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    (answer,) = compared(runs, name).answers
    return answer


def test_every_output_has_the_same_lines(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES)
    comparison = compared(tmp_path, "one")
    (answer,) = comparison.answers
    assert len(answer.lines) == 5
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
        assert re.search(rf"\| +{row.test['map_at_r'].mean * 100:.2f}", run.description)


def test_a_default_is_recommended_with_its_hyperparameters(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES)
    recommended = {"loss": "mpa", "number": 0, "basis": "chosen on halves"}
    losses = json.loads((tmp_path / "one" / "summary.json").read_text())["losses"]
    losses["mpa"]["tuned"] |= {"number": 0, "params": {"x": 1}}
    answer = changed(tmp_path, "one", recommended=recommended, losses=losses)
    assert answer.recommended == "Recommended: mpa with its default x=1 (chosen on halves)."
    assert answer.better_than_default == "Better than its default: it is the default."
    said = "Better than no training: not compared, because training began from random weights."
    assert answer.better_than_untrained == said
    rows = holdout.open("one", runs=tmp_path).comparison().to_frame()
    assert rows[rows.loss == "mpa"].role.tolist() == ["default"], "tuned names nothing that is a default"


def test_an_unknown_difference_has_the_reason_of_the_recommended_loss(tmp_path: Path) -> None:
    made_search(tmp_path, "one", YES, seeds=(11,))
    assert next(iter(YES)) != "pnp"
    recommended = {"loss": "pnp", "number": 7, "basis": "chosen on halves"}
    answer = changed(tmp_path, "one", recommended=recommended, untrained={"validation": {"map_at_r": 0.2}})
    reason = "not shown (one pnp tuned has only one seed (final.seeds), so its noise is unknown)."
    assert answer.better_than_default == f"Better than its default: {reason}"
    assert answer.better_than_untrained == f"Better than no training: {reason}"


def test_the_losses_that_are_not_different_from_the_recommended_one_are_named(tmp_path: Path) -> None:
    made_search(tmp_path, "one", {"mpa": (0.5, 0.7), "pnp": (0.3, 0.7), "triplet": (0.3, 0.35), "margin": (0.3, 0.701)})
    comparison = compared(tmp_path, "one")
    (answer,) = comparison.answers
    alike = {pair.second.loss for pair in comparison.pairs if pair.first[1:] == ("mpa", "tuned") and not pair.differ}
    assert alike == {"pnp", "margin"}
    assert answer.not_different == "Not significantly different from it: pnp, margin."
    recommended = {"loss": "triplet", "number": 7, "basis": "chosen on halves"}
    assert changed(tmp_path, "one", recommended=recommended).not_different.endswith("from it: no other loss.")
    made_search(tmp_path, "alone", {"mpa": (0.5, 0.7)})
    assert len(compared(tmp_path, "alone").answers[0].lines) == 4, "there is no other loss"


def test_rows_that_two_searches_share_are_shown_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        made_search(tmp_path, name, YES)
    made_search(tmp_path, "three", NO)
    comparison = compared(tmp_path, "one", "two")
    names = [(loss, role) for loss in YES for role in ("0, default", "7, tuned")]
    for tables in (text_tables, headline_tables):
        assert [row[:2] for row in tables(comparison)[1].rows] == [("chance", "–"), *names]
    labels = [row[0] for row in text_tables(compared(tmp_path, "one", "two", "three"))[1].rows]
    assert labels[1::2] == labels[2::2] == ["one, two/mpa", "one, two/pnp", "three/mpa"]


def _scores(folder: Path) -> None:
    path = folder / "test.json"
    path.write_text(path.read_text().replace('"overlap": 0', '"overlap": 1'))


def _summary(folder: Path) -> None:
    losses = json.loads((folder / "summary.json").read_text())["losses"]
    losses["mpa"]["tuned"]["params"]["x"] = 3
    changed(folder.parent, folder.name, losses=losses)


def _result(folder: Path) -> None:
    path = next(folder.glob("test/*/mpa-7-*.npz"))
    with np.load(path) as arrays:
        np.savez_compressed(path, **{**arrays, "map_at_r": arrays["map_at_r"] + 0.25})


@pytest.mark.parametrize(
    ("change", "what"), [(_scores, "test.json"), (_summary, "summary.json"), (_result, "a file in test/")]
)
def test_changed_results_are_the_first_line_of_every_output(
    tmp_path: Path, change: Callable[[Path], None], what: str
) -> None:
    made_search(tmp_path, "one", YES)
    assert not compared(tmp_path, "one").changed
    files = [tmp_path / f"table{suffix}" for suffix in (".csv", ".md", ".tex")]
    options = ["--runs", tmp_path, *(word for file in files for word in ("--output", file))]
    holdout_here("compare", "one", *options)
    assert not any("was changed" in file.read_text() for file in files)
    change(tmp_path / "one")
    said = f"one: {what} was changed after it was written: the digests differ (`holdout verify one`)"
    assert plain(holdout_here("compare", "one", *options, code=1).stdout).startswith(said)
    first = [next(line for line in file.read_text().splitlines() if "usepackage" not in line) for file in files]
    assert [line.replace("\\`", "`").lstrip("#%- ").rstrip(".") for line in first] == [said] * 3
    out = json.loads(holdout_here("compare", "one", "--json", "--runs", tmp_path, code=1).stdout)
    assert out["changed"] == [said]
    comparison, folder = compared(tmp_path, "one"), RunFolder(tmp_path, "one")
    assert section(comparison).lead[0] == f"{said}."
    assert search_run(comparison, folder, "").description.startswith(said)


# The pictures of the answer.


def test_a_pair_of_losses_is_in_both_rows_of_the_matrix(tmp_path: Path) -> None:
    losses = ["mpa", "margin", "pnp"]
    made_search(tmp_path, "one", {loss: (0.3, 0.3 + number / 10) for number, loss in enumerate(losses)})
    comparison = compared(tmp_path, "one")
    pairs = tuple(pair for pair in comparison.pairs if pair.first.loss != pair.second.loss)
    (heat,) = plot_of(pair_matrix(comparison.model_copy(update={"pairs": pairs[::-1]})))["data"]
    assert heat["x"] == heat["y"] == losses, "in the order of the table"
    by_pair = {(row, column): text for row, texts in zip(losses, heat["text"]) for column, text in zip(losses, texts)}
    for pair in pairs:
        first, second = pair.first.loss, pair.second.loss
        sign = "≈" if not pair.differ else "↑" if pair.difference > 0 else "↓"
        opposite = {"↑": "↓", "↓": "↑", "≈": "≈"}[sign]
        assert by_pair.pop((first, second)) == f"{100 * pair.difference:+.1f} {sign}"
        assert by_pair.pop((second, first)) == f"{-100 * pair.difference:+.1f} {opposite}"
    assert {*by_pair.values()} == {""}
