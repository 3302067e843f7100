"""The comparison of searches with records written by hand: its table, pairs and files."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_rel
from support.commands import holdout_here, plain
from support.driving import drive, only, train
from support.made_search import SEEDS, Means, compared, frozen_selection, made_search
from support.small_search import GLYPHS

import holdout as library
from search.config.search_config import parse_config
from search.difference import RowKey
from search.driver.choice import freeze
from search.driver.stages import confirm_stage
from search.driver.synchronise import loss_run, search_run
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.selection import Selection
from search.records.writable import WritableRecords
from search.results.comparison import summary_of, unlike_sentences
from search.results.pairs import p_value
from search.results.rows import Row, SeedStatistics, sentence as sentence_of
from search.show.comparison_tables import as_csv, differences_table, headline_tables, text_tables, units_note
from search.show.sections.answer import answer
from search.stages import Role
from search.study.trial_queue import TrialQueue
from search.text_table import as_latex, as_markdown
from trainables.common.errors import InvalidInput
from trainables.common.files import write_json


def scores_of(row: Row) -> SeedStatistics:
    assert row.test is not None
    return row.test["map_at_r"]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One search: pnp and mpa differ, mpa's default does not."""
    made_search(tmp_path, "one", {"mpa": (0.5, 0.5), "pnp": (0.3, 0.6)})
    return tmp_path


def test_each_loss_is_paired_with_its_default_and_with_each_other(runs: Path) -> None:
    found = compared(runs, "one")
    assert found.warnings == (), "what was frozen is not chosen after the opening"
    pairs = {(*pair.first[1:], *pair.second[1:]): pair for pair in found.pairs}
    assert set(pairs) == {
        ("mpa", "tuned", "mpa", "default"),
        ("pnp", "tuned", "pnp", "default"),
        ("mpa", "tuned", "pnp", "tuned"),
    }
    assert [pair.p_corrected for pair in found.pairs] == [min(1, 3 * pair.p) for pair in found.pairs]
    assert not pairs["mpa", "tuned", "mpa", "default"].differ
    pair = pairs["pnp", "tuned", "pnp", "default"]
    values = [scores_of(entry).values for entry in found.rows if entry.loss == "pnp"]
    assert pair.difference == pytest.approx(np.mean(values[1]) - np.mean(values[0]))
    assert pair.differ
    low, high = pair.ci95
    assert low < 0.3 < high


def test_one_seed_alone_and_other_images_are_not_paired(runs: Path) -> None:
    """With one seed the classes' noise is known, and the seeds' own is not."""
    made_search(runs, "another", {"pnp": (0.3, 0.9)}, seeds=(13,))
    made_search(runs, "two", {"pnp": (0.3, 0.6)})
    path = runs / "two" / "test" / "first-two" / "pnp-7-12.npz"
    with np.load(path) as content:
        np.savez(path, **{**content, "keys": content["keys"][::-1]})
    found = compared(runs, "one", "another", "two")
    paired = {(key.search, key.role) for pair in found.pairs for key in (pair.first, pair.second)}
    assert paired == {("one", "tuned"), ("one", "default")}
    left_out = " ".join(found.left_out)
    assert "another pnp tuned has only one seed (final.seeds)" in left_out
    assert "two pnp tuned was not tested on the same items as one mpa tuned" in left_out


def test_searches_compare_in_one_table_whatever_their_seeds(runs: Path) -> None:
    made_search(runs, "two", {"pnp": (0.3, 0.6)}, seeds=(12, 13, 14))
    made_search(runs, "other", {"pnp": (0.3, 0.6)}, seeds=(1, 2, 3))
    made_search(runs, "sealed", {"pnp": (0.3, 0.6)}, tested=False)
    found = compared(runs, "one", "two", "other", "sealed")
    assert [(row.search, row.loss) for row in found.rows][::2] == [
        ("one", "mpa"), ("one", "pnp"), ("two", "pnp"), ("other", "pnp"), ("sealed", "pnp"),
    ]  # fmt: skip
    across = {(pair.first.search, pair.second.search): pair.seeds for pair in found.pairs}
    assert across["one", "two"] == across["one", "other"] == 3
    assert not {search for pair in across for search in pair} & {"sealed"}
    shown = plain(holdout_here("compare", "one", "two", "other", "sealed", "--runs", runs).stdout)
    assert "one, two, other, sealed: losses, default and tuned" in shown
    assert "this test set: 3 openings by 3 searches, 8 configurations scored" in shown
    assert "chosen after opening: one table for one, two, other; each was frozen with a separate table" in shown


@pytest.mark.parametrize(
    ("frozen", "said"),
    [
        ({"metrics": ("recall_at_1",)}, "map_at_r, recall_at_1; the metrics frozen with the choice were recall_at_1"),
        ({"rows": (RowKey("one", "mpa", Role.TUNED),)}, "rows (4 shown, 1 frozen with the choice)"),
        ({"pairs": ()}, "pairs (3 shown, 0 frozen with the choice)"),
    ],
)
def test_another_table_than_the_frozen_one_says_so(runs: Path, frozen: dict[str, Any], said: str) -> None:
    selection = frozen_selection("one", ["mpa", "pnp"])
    replace(selection, family=replace(selection.family, **frozen)).save(runs / "one" / "selection.json")
    assert compared(runs, "one").warnings == (f"chosen after opening: {said}",)
    assert f"chosen after opening: {said}" in plain(holdout_here("compare", "one", "--runs", runs).stdout)


# Seeds that have no effect, and seeds that several searches share.


@pytest.mark.parametrize("folds", [1, 2])
def test_a_training_that_ignores_its_seed_has_no_interval_over_seeds(tmp_path: Path, folds: int) -> None:
    """Its rows are compared over classes, by scipy's paired t test, and every output says so."""
    made_search(tmp_path, "one", {"mine": (0.5, 0.51)}, folds=folds, idle_seeds=True)
    found, folders = compared(tmp_path, "one"), [RunFolder(tmp_path, "one")]
    sentence = "mine: its seeds have no effect, so they give no interval"
    assert found.warnings == (sentence,)
    for row in found.rows:
        assert (scores_of(row).ci95, scores_of(row).seeds) == (None, 3)
    stored = json.loads((tmp_path / "one/summary.json").read_text())["losses"]["mine"]
    assert stored["tuned"]["test"]["map_at_r"]["ci95"] is stored["default"]["test"]["map_at_r"]["ci95"] is None
    (pair,) = found.pairs
    files = tmp_path / "one" / "test" / "first-one"
    default, tuned = (
        np.mean([np.load(path)["map_at_r"].reshape(30, 4).mean(1) for path in files.glob(f"mine-{number}-11*")], axis=0)
        for number in (0, 7)
    )
    expected = ttest_rel(tuned, default)
    assert pair.p == pytest.approx(expected.pvalue)
    assert pair.ci95 == pytest.approx(tuple(expected.confidence_interval()))
    assert pair.seeds == 3
    written = [write(text_tables(found)) for write in (as_markdown, as_latex)]
    assert all(sentence in text and (folds > 1 or "0.0000" not in text) for text in written)
    assert any(sentence in table.notes for table in headline_tables(found))
    assert sentence_of(sentence) in answer(found).remarks
    assert f"{sentence}." in search_run(found, folders[0], "").description
    assert sentence in json.loads(holdout_here("compare", "one", "--runs", tmp_path, "--json").stdout)["warnings"]


def test_rows_of_two_searches_that_are_the_same_trainings_are_named(runs: Path) -> None:
    """Equal hyperparameters, settings, split and seeds; not what a search is called or how it searched."""
    said = "rows of equal configuration and seeds are the same trainings, not replications"

    def told(name: str, means: Means, *, seeds: tuple[int, ...] = SEEDS, **content: Any) -> list[str]:
        made_search(runs, name, means, seeds=seeds)
        config = RunFolder(runs, name).config
        write_json(config, {**json.loads(config.read_bytes()), **content})
        return [warning for warning in compared(runs, "one", name).warnings if said in warning]

    both = {"mpa": (0.5, 0.5), "pnp": (0.3, 0.6)}
    assert told("two", both, search={"trials": 99}, tracking={"uri": "sqlite://"}) == [f"one, two: {said}"]
    assert told("some", {"pnp": (0.3, 0.6)}, seeds=(13, 14, 15)) == [f"one/pnp, some: {said}"]
    assert told("fresh", both, seeds=(1, 2, 3)) == []
    assert told("other", both, training={"lr": 1e-4}) == []
    assert told("all", both, final={"train_on": "all"}) == []
    assert told("loss", {"triplet": (0.3, 0.6)}) == []


def test_the_folds_of_a_seed_are_one_draw(tmp_path: Path) -> None:
    """Pairs are paired by the seeds' means over their folds, and a seed that lacks a fold is not paired."""
    made_search(tmp_path, "folds", {"pnp": (0.5, 0.51)}, folds=4)
    found = compared(tmp_path, "folds")
    (pair,), rows = found.pairs, found.rows
    means = [np.reshape(scores_of(row).values, (3, 4)).mean(1) for row in rows]
    assert pair.seeds == 3
    assert pair.difference == pytest.approx(means[1].mean() - means[0].mean())
    file = tmp_path / "table.csv"
    holdout_here("compare", "folds", "--runs", tmp_path, "--output", file)
    records = list(csv.DictReader(file.read_text().splitlines()))
    assert {record["seeds"] for record in records if record["stage"] == "test"} == {"3"}
    path = tmp_path / "folds" / "test.json"
    content = json.loads(path.read_text())
    del content["openings"][0]["scores"][-1]
    write_json(path, content)
    (pair,) = compared(tmp_path, "folds").pairs
    assert pair.seeds == 2


def test_sealed_searches_compare_on_validation_alone(tmp_path: Path) -> None:
    made_search(tmp_path, "sealed", {"pnp": (0.3, 0.6)}, tested=False)
    found = compared(tmp_path, "sealed")
    assert found.pairs == found.left_out == found.test_metrics == ()
    shown = holdout_here("compare", "sealed", "--runs", tmp_path).stdout
    assert shown.count("sealed") >= 3
    assert "Differences" not in shown


def test_records_that_are_gone_or_of_few_classes_tell_no_difference(runs: Path) -> None:
    (runs / "test_openings.jsonl").unlink()
    assert compared(runs, "one").openings == "this test set: opened without a line in the ledger, which was changed"
    gone = runs / "one" / "test" / "first-one" / "pnp-7-12.npz"
    for path in gone.parent.iterdir():
        with np.load(path) as content:
            few = {name: values[content["labels"] < 4] for name, values in content.items()}
        np.savez(path, **few)
    few_classes, found = "4 test classes are too few to estimate their variance; it takes 5", compared(runs, "one")
    assert (found.pairs, found.left_out) == ((), (f"no pairs: {few_classes}",))
    gone.unlink()
    found = compared(runs, "one")
    assert (found.pairs, found.left_out) == ((), (f"no pairs: the per-image results {gone} are missing",))


def test_files_hold_the_same_numbers(runs: Path, tmp_path: Path) -> None:
    made_search(runs, "two_b", {"pnp": (0.3, 0.6)})
    files = [tmp_path / f"table{suffix}" for suffix in (".csv", ".md", ".tex")]
    options = [option for file in files for option in ("--output", file)]
    found = json.loads(holdout_here("compare", "one", "two_b", "--runs", runs, "--json", *options).stdout)
    assert found == compared(runs, "one", "two_b").model_dump(mode="json")
    records = list(csv.DictReader(files[0].read_text().splitlines()))
    tests = [entry for entry in records if entry["stage"] == "test" and not entry["p"]]
    expected = [(row, metric, row["test"][metric]) for row in found["rows"] for metric in found["test_metrics"]]
    for entry, (row, metric, score) in zip(tests, expected, strict=True):
        named = (entry["search"], entry["loss"], entry["role"], entry["metric"])
        assert named == (row["search"], row["loss"], row["role"], metric)
        assert float(entry["mean"]) == score["mean"]
        assert [float(entry["ci95_low"]), float(entry["ci95_high"])] == score["ci95"]
    markdown, latex = files[1].read_text(), files[2].read_text()
    for text in (markdown, latex):
        assert all(f" {100 * pair['difference']:+.1f} " in text for pair in found["pairs"])
        assert "two\\_b/pnp" in text
    tables = [block.splitlines() for block in markdown.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    assert all(len({line.replace("\\|", "").count("|") for line in table}) == 1 for table in tables), "equal lines"
    assert "95 \\% interval" in latex
    assert all(f"{100 * score['mean']:.1f} $\\pm$" in latex for _, _, score in expected), "in per cent"


OBJECTIVES = "different objectives and cannot be compared (one: map_at_r; two: recall_at_1)"
GALLERIES = "(one: validation classes alone; two: with half of the training images)"


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        ('"objective": "map_at_r"', '"objective": "recall_at_1"', OBJECTIVES),
        ('"training_half": false', '"training_half": true', GALLERIES),
    ],
)
def test_different_objectives_or_galleries_are_not_compared(runs: Path, before: str, after: str, refusal: str) -> None:
    made_search(runs, "two", {"pnp": (0.3, 0.6)})
    path = runs / "two" / "summary.json"
    path.write_text(path.read_text().replace(before, after))
    alone = plain(holdout_here("compare", "two", "--runs", runs, code=1).stdout)
    assert ("validate among half of the training images too" in alone) == ("training_half" in before)
    assert refusal in plain(holdout_here("compare", "one", "two", "--runs", runs, code=2).stderr)


def test_each_output_shows_its_columns(runs: Path) -> None:
    found = compared(runs, "one")
    stages = [f"map_at_r {stage}" for stage in ("search", "confirmed", "final")]
    tests = ["map_at_r test", "recall_at_1 test"]
    for made, shown in ((text_tables, [*stages, *tests]), (headline_tables, [*tests, "minus default points"])):
        assert [name.replace("\n", " ") for name in made(found)[1].header[2:]] == shown
    in_csv = [record["stage"] for record in csv.DictReader(as_csv(found).splitlines()) if record["role"]]
    assert [*dict.fromkeys(in_csv)] == ["search", "confirmed", "final", "test"]
    in_mlflow = [name for name in loss_run(found, "pnp").metrics if not name.startswith(("default/", "trials/"))]
    of_search = ["search/map_at_r", "confirmed/map_at_r", "confirmed/map_at_r_std"]
    assert in_mlflow == [*of_search, "test/map_at_r", "test/map_at_r_std", "test/recall_at_1"]


def test_no_p_value_is_zero() -> None:
    values = (0.0, 0.00009, 0.0001, 0.04996, 0.05002, 1.0)
    assert [*map(p_value, values)] == ["< 0.0001", "< 0.0001", "0.0001", "0.0500", "0.05002", "1.0000"]


def test_a_metric_beyond_1_is_shown_as_measured(runs: Path) -> None:
    (pair, *_) = compared(runs, "one").pairs
    unbounded = pair.model_copy(update={"metric": "dists_intra", "difference": -1.23456, "ci95": (-2.5, 0.5)})
    table = differences_table([unbounded], lambda pair: "a − b", "", [])
    assert table.rows[0][:3] == ("a − b", "-1.235", "[-2.5000, 0.5000]")
    assert "points" not in table.title
    assert units_note(["dists_intra"]) == ""


# The margin of equivalence, from the file to the comparison: frozen before the test.


def test_the_margin_is_frozen_with_the_choice(opened: Callable[..., WritableRecords]) -> None:
    search = opened(losses=["pnp"], search={"trials": 1}, final={"within": 99})
    drive(search)
    queue = TrialQueue(only(confirm_stage(search)))
    while job := queue.next_trial():
        train(queue, job, lambda job, epoch: epoch / 10)
    assert freeze(search).family.within == 99
    assert Selection.load(search.folder.selection).family.within == 99


@pytest.fixture
def alike(runs: Path) -> Path:
    """The search, with a margin of 99 points that was frozen with its choice."""
    selection = frozen_selection("one", ["mpa", "pnp"])
    replace(selection, family=replace(selection.family, within=99.0)).save(runs / "one" / "selection.json")
    return runs


def test_the_frozen_margin_decides_and_another_comes_after_the_test(alike: Path) -> None:
    comparison = library.compare("one", runs=alike)
    assert comparison.pairs
    assert all(pair.within == 0.99 and pair.same for pair in comparison.pairs)
    assert not any("margin" in warning for warning in comparison.warnings)
    assert "the same within 99 points" in plain(holdout_here("compare", "one", "--runs", alike).stdout)
    said = plain(holdout_here("compare", "one", "--runs", alike, "--within", "1e-9").stdout)
    assert "chosen after opening: the margin of equivalence is 1e-09; frozen with the choice was 99" in said
    assert "undecided" in said
    assert not any(pair.same for pair in library.compare("one", runs=alike, within=1e-9).pairs)


@pytest.mark.parametrize("margin", ["0", "nan", "inf"])
def test_a_margin_that_is_none_is_refused(alike: Path, margin: str) -> None:
    refusal = plain(holdout_here("compare", "one", "--runs", alike, "--within", margin, code=2).stderr)
    assert f"within is {margin}; the margin of equivalence is above 0, such as 1 for one point" in refusal
    with pytest.raises(InvalidInput, match=r"final\.within"):
        parse_config({**GLYPHS, "name": "alike", "final": {"within": float(margin)}})


# The warning where rows differ in the network or its images, which the thesis criticises in section 3.5.1.

UNLIKE = "rows differ in more than the loss, which may explain their differences: "


def test_rows_that_differ_in_the_network_or_its_images_are_named(tmp_path: Path) -> None:
    """By their searches, losses or configurations; a searched network is that of the row."""
    network, images = {"pooling": "avg"}, {"image_size": 16}
    for name, changes in {
        "plain": {},
        "same": {"training": {**images, "lr": 1e-4}},
        "gem": {"model": {"pooling": "gem"}, "training": {"image_size": 20}},
    }.items():
        made_search(tmp_path, name, {"mpa": (0.3, 0.6), "pnp": (0.3, 0.6)})
        config = RunFolder(tmp_path, name).config
        write_json(config, {**json.loads(config.read_bytes()), "model": network, "training": images, **changes})

    def told(*names: str, searched: tuple[tuple[str, Role], ...] = ()) -> list[str]:
        searches = [Records(RunFolder(tmp_path, name)) for name in names]
        rows = [
            row.model_copy(update={"params": {"model.pooling": "gem"}}) if (row.loss, row.role) in searched else row
            for search in searches
            for row in summary_of(search).rows
        ]
        return [warning.removeprefix(UNLIKE) for warning in unlike_sentences(searches, rows)]

    assert told("plain") == told("plain", "same") == []
    assert told("plain", "gem", "same") == [
        "model.pooling is avg in plain, same, but gem in gem; training.image_size is 16 in plain, same, but 20 in gem"
    ]
    assert any(warning.startswith(UNLIKE) for warning in compared(tmp_path, "plain", "gem").warnings)
    pnp = (("pnp", Role.DEFAULT), ("pnp", Role.TUNED))
    assert told("plain", searched=pnp) == ["model.pooling is avg in mpa, but gem in pnp"]
    assert told("plain", searched=pnp[1:]) == ["model.pooling is avg in mpa, pnp default, but gem in pnp tuned"]
