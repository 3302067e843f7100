"""Ways around the seal, each reported or refused, and when the test stays sealed; trainings and scores are made up."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image
from support.commands import holdout_here, json_of, plain, printed, refusal, stored, summary, write_search
from support.driving import Opened
from support.journals import CREATE_STUDY, CREATE_TRIAL, drop_trial, of_trial, rewrite, rewritten, without_openings
from support.made_search import frozen_selection
from support.refusals import contents
from support.small_search import GLYPHS, SHORTEST, draw_folder, small_search
from support.without_ray import MADE_UP, MadeUp, only_records

from search.difference import Recommendation
from search.driver.make_plan import reopened
from search.driver.stages import final_stage, unchanged_selection
from search.driver.synchronise import search_run
from search.records.ledger import Ledger
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.score_files import Scoring
from search.records.selection import Confirmation, Selection
from search.records.writable import open_search
from search.results.comparison import compare
from search.stages import Stage
from search.study.trial_queue import RunningTrial, TrialQueue
from trainables.common.files import write_json
from trainables.data.store.contents import read_contents

SMALL: dict[str, Any] = {
    **SHORTEST,
    "search": {"trials": 2},
    "metrics": {"test": ["recall_at_1"]},
    "resources": MADE_UP,
}
ONCE = "1 opening by 1 search"


@pytest.fixture(autouse=True)
def scored(monkeypatch: pytest.MonkeyPatch) -> list[Scoring]:
    return only_records(monkeypatch)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Draw images that a test may change: classes 00 to 07 train, 08 to 15 are held out."""
    return draw_folder(tmp_path / "images", images=5)


def run(root: Path, runs: Path, name: str = "small", *, code: int = 0, **changes: Any) -> str:
    runs.mkdir(exist_ok=True)
    file = write_search(runs.parent / f"{name}.yaml", small_search(root, **{**SMALL, "name": name, **changes}))
    done = holdout_here("run", file, "--runs", runs, code=code)
    return plain(done.stdout + done.stderr)


def copied(images: Path, name: str, folder_of: Callable[[int], str | None]) -> Path:
    """Copy the images, class ``n`` to the folder ``folder_of(n)``; leave it out if that is None."""
    root = images.parent / name
    for number, path in enumerate(sorted(images.iterdir())):
        if folder := folder_of(number):
            shutil.copytree(path, root / folder)
    return root


def swapped_halves(images: Path) -> Path:
    """Copy the images, so that the test classes train."""
    return copied(images, "swapped", lambda number: f"{(number + 8) % 16:02d}")


def test_opened_classes_are_recognised_elsewhere(images: Path, runs: Path, tmp_path: Path) -> None:
    """In another runs folder, under another name, in another order, in another format, and with one class fewer."""
    first = run(images, runs)
    assert "opened before" not in first
    assert "damaged" not in first
    assert f"this test set: {ONCE}, 2 configurations scored" in first
    elsewhere = tmp_path / "elsewhere"
    second = run(images, elsewhere, "other")
    assert f"other: 8 of 8 of these classes were opened before ({ONCE}, 2 configurations scored: small on 20" in second
    assert "this test set: 2 openings by 2 searches, 4 configurations scored" in second
    fewer = copied(images, "fewer", lambda number: None if number in (0, 15) else f"{number:02d}")
    said = run(fewer, elsewhere, "fewer")
    assert f"this test set: {ONCE}, 2 configurations scored; 7 of 7 of these classes were opened before (2 op" in said
    shutil.rmtree(runs)
    compared = printed("compare", "other", "--runs", elsewhere)
    assert "this test set: 2 openings by 2 searches, 4 configurations scored" in compared
    renamed = copied(images, "renamed", lambda number: f"{number // 8}-{99 - number}")
    for path in sorted(renamed.rglob("*.png")):
        Image.open(path).save(path.with_name(f"z{100 - int(path.stem)}.bmp"))
        path.unlink()
    said = run(renamed, elsewhere, "renamed")
    assert "8 of 8 of these classes were opened before" in said
    assert "this test set: 3 openings by 3 searches" in said


def test_copies_among_training_classes_are_told(images: Path, runs: Path) -> None:
    assert "in several classes" not in run(images, runs, "before", stages=["search"])
    shutil.copy(images / "class-05" / "00.png", images / "class-03" / "00.png")
    shutil.copy(images / "class-04" / "00.png", images / "class-04" / "01.png")  # of one class
    told = "small: 2 of the 40 training and validation images are in several classes (class-03/00.png, class-05/00.png)"
    assert run(images, runs, stages=["search"]).count(told) == 1


def verified(runs: Path, name: str) -> str:
    """Verify a search; the later checks miss the files of the simulated trainings."""
    done = holdout_here("verify", name, "--runs", runs, code=1)
    return done.stdout + plain(done.stderr)


def test_training_on_an_opened_test_set_is_told(images: Path, runs: Path, tmp_path: Path) -> None:
    run(images, runs)
    swapped = swapped_halves(images)
    told = f"training on items of an opened test set: 8 of 8 classes ({ONCE}, 2 configurations scored: small on 20"
    elsewhere = tmp_path / "elsewhere"
    for stages in (["search"], ["search", "select"]):
        said = run(swapped, elsewhere, "swapped", stages=stages)
        assert said.count(f"swapped: {told}") == 3 - len(stages), "at the start, and below each table"
        run(images, runs, f"again-{len(stages)}")  # a later opening
    found = verified(elsewhere, "swapped")
    assert "ok  trained_on_opened.json: the openings in the ledger" in found
    assert "ok  search.yaml, trained_on_opened.json: as they were when the search began" in found
    assert "trained_on_opened" in json.loads(RunFolder(elsewhere, "swapped").selection.read_text())
    again = printed("test", "swapped", "--runs", elsewhere)
    assert f"swapped: {told}" in again
    assert "opened before" not in again, "its test classes were only trained on"


def test_the_record_of_earlier_openings_is_that_of_the_start(images: Path, runs: Path) -> None:
    """Of a search with such a warning and of one without: changed, removed, or as the other kind writes it."""
    swapped = swapped_halves(images)
    none = '{"warning": null, "openings": []}'
    claimed = none.replace("null", '"training on items of an opened test set: 1 of 8 classes"')
    for name, root in (("clean", images), ("swapped", swapped)):
        run(root, runs, name, stages=["search"])
        record = RunFolder(runs, name).trained_on_opened
        begun = record.read_bytes()
        assert (json.loads(begun) == json.loads(none)) == (name == "clean")
        less = begun.decode().replace("8 of 8", "1 of 8")
        for content in (claimed, None) if name == "clean" else (less, none, None):
            record.unlink() if content is None else record.write_text(content)
            before = contents(runs)
            first = verified(runs, name).partition("FAILED: ")[2].splitlines()[0]
            assert "trained_on_opened.json" in first
            assert ("opened test set: 8 of 8" in first) == (content == less), "the warning is recomputed"
            for stages in (["search"], ["search", "select", "test"]):
                said = run(root, runs, name, stages=stages, code=2)
                assert f"what {name}/pnp began with was replaced (trained_on_opened); restore it" in said
            assert contents(runs) == before
            record.write_bytes(begun)
        run(images, runs)  # opens what the next one trains on
    assert "training on items of an opened test set" in run(swapped, runs, "swapped")


def test_a_later_opening_does_not_affect_the_training(images: Path, runs: Path) -> None:
    run(images, runs, stages=["search", "select"])
    run(swapped_halves(images), runs, "swapped")
    assert "training on items" not in printed("test", "small", "--runs", runs)


def test_equal_names_of_other_images_are_not_compared(images: Path, runs: Path) -> None:
    run(images, runs)
    training, test = (copied(images, name, lambda number: f"class-{number:02d}") for name in ("training", "test"))
    repaint(training / "class-00" / "00.png")
    repaint(test / "class-15" / "00.png")
    run(training, runs, "training")
    splits = {json.loads((runs / name / "split.json").read_text())["digest"] for name in ("small", "training")}
    assert len(splits) == 2
    said = refusal("compare", "small", "training", "--runs", runs)
    assert "These searches have different splits and cannot be compared" in said
    said = run(test, runs, "test")
    assert f"this test set: {ONCE}, 2 configurations scored; 8 of 8 of these classes were opened before" in said
    said = refusal("compare", "small", "test", "--runs", runs)
    assert "These searches were tested on different items of classes with the same names" in said


def repaint(path: Path) -> None:
    Image.new("RGB", (20, 20), "red").save(path)


def test_classes_and_training_images_are_not_exchanged_under_a_search(images: Path, runs: Path) -> None:
    run(images, runs, stages=["search"])
    (images / "class-08").rename(runs / "class-08")
    assert "The classes in the data set are not those that small began with" in run(images, runs, code=2)
    (runs / "class-08").rename(images / "class-08")
    image = images / "class-00" / "00.png"
    whole = image.read_bytes()
    repaint(image)
    differ = "The training images differ from those that small started with: some were added, removed or changed"
    assert differ in run(images, runs, code=2)
    image.write_bytes(whole)
    run(images, runs)


@pytest.mark.parametrize(
    ("left", "name"), [("journal", "small"), ("journal and record", "small"), ("all", "small"), ("journal", "other")]
)
def test_another_search_is_not_continued_under_its_name(images: Path, runs: Path, left: str, name: str) -> None:
    """The journal of a search with another seed or name, from another folder or left behind there."""
    other = runs.with_name("other")
    run(images, other, name, stages=["search", "select"], search={"trials": 2, "seed": 7})
    mine, theirs = RunFolder(runs, "small"), RunFolder(other, name)
    if left == "all":
        run(images, runs, stages=["search", "select"])
    mine.path.mkdir(parents=True, exist_ok=True)
    shutil.copy(theirs.journal, mine.journal)
    if left == "journal and record":
        shutil.copy(theirs.trained_on_opened, mine.trained_on_opened)
    before = contents(mine.path)
    refused = f"study.journal is another search's, or what {name}/pnp began with was replaced (settings"
    assert refused in run(images, runs, code=2)
    assert contents(mine.path) == before
    assert not Ledger(mine.openings).openings()


def test_searches_that_opened_no_test_are_counted_where_openings_are(
    campaign: Callable[..., str], images: Path, runs: Path
) -> None:
    """Also if they were removed, or are in another runs folder; with other seeds and splits."""
    for number, folder in enumerate((runs, runs, runs.with_name("elsewhere"))):
        name = f"tried-{number}"
        said = run(
            images, folder, name, stages=["search"], split={"seed": number}, search={"trials": 1, "seed": number}
        )
        assert ("searches on classes of these names opened no test" in said) == bool(number)
    shutil.rmtree(runs / "tried-1")
    assert f"{ONCE}, 2 configurations scored; 3 searches on classes of these names opened no test" in run(images, runs)
    again = printed("test", "small", "--again", "to see that it is counted", "--runs", runs)
    assert "2 openings by 1 search, 2 configurations scored; 3 searches on classes" in again
    campaign("base.stages=[search, select]")
    sealed = printed("compare", "lot-cold", "--runs", runs)
    assert "2 configurations scored; 4 searches on classes of these names opened no test" in sealed, "a campaign is one"


def test_a_campaign_and_a_search_that_grows_are_one_search_each(
    campaign: Callable[..., str], images: Path, runs: Path
) -> None:
    assert "opened no test" not in campaign("base.stages=[search, select]")
    assert "opened no test" not in campaign()
    run(images, runs, stages=["search", "select"])
    assert "opened no test" not in run(images, runs, search={"trials": 3})


def test_a_tested_search_is_compared_with_one_of_further_losses(images: Path, runs: Path) -> None:
    run(images, runs, final={"seeds": 2})
    before = contents(runs)
    said = run(images, runs, code=2, final={"seeds": 2}, losses=["pnp", "proxy_anchor"])
    assert "The file asks for the loss proxy_anchor, and the test of small has been opened or is trained for" in said
    assert contents(runs) == before
    said = run(images, runs, "small-2", final={"seeds": 2}, losses=["proxy_anchor"])
    assert "this test set: 2 openings by 2 searches" in said
    pairs = compare([Records(RunFolder(runs, name)) for name in ("small", "small-2")]).pairs
    assert {"small", "small-2"} in [{pair.first.search, pair.second.search} for pair in pairs]


def test_a_runs_folder_does_not_name_other_searches_of_its_user(images: Path, runs: Path) -> None:
    private, elsewhere = copied(images, "private", lambda number: f"secret-{number:02d}"), runs.with_name("elsewhere")
    for path in private.rglob("*.png"):
        Image.open(path).rotate(90).save(path)
    run(private, elsewhere, "secret")
    run(images, elsewhere, "known")
    said = run(images, runs)
    assert re.search(r"8 of 8 of these classes were opened before \(1 opening by 1 search, .*: known on 20\d\d-", said)
    published = RunFolder(runs, "small").openings.read_text()
    assert "secret" not in published
    assert "known" in published
    assert "secret" in RunFolder(elsewhere, "secret").openings.read_text()
    shutil.copytree(runs, runs.with_name("received"))
    assert "2 openings by 2 searches" in printed("compare", "small", "--runs", runs.with_name("received"))


def test_final_trainings_of_something_else_are_not_scored(images: Path, runs: Path, scored: list[Scoring]) -> None:
    run(images, runs, stages=["search", "select"])
    with closing(open_search(reopened(runs, "small"))) as search:
        selection = unchanged_selection(search)
        chosen = selection.chosen["pnp"]
        params = {**chosen.params, "temperature": 0.0123}
        stage = final_stage(search, replace(selection, chosen={"pnp": replace(chosen, params=params)}))
        MadeUp(search.config.resources).run(TrialQueue(iter([stage])), 1)
        assert params in [trial.params for trial in search.trials("pnp", Stage.TEST)], "they take what was frozen"
    said = refusal("test", "small", "--runs", runs)
    told = r"Trial \d of small/pnp@final was trained with other parameters than those frozen with the choice"
    assert re.search(told, said)
    assert not scored
    assert not Ledger(runs / "test_openings.jsonl").openings()


def forget_finals(runs: Path) -> None:
    with rewritten(runs / "small" / "study.journal") as found:
        studies = [entry["study_name"] for entry in found if entry["op_code"] == CREATE_STUDY]
        for study in [name for name in studies if name.endswith("@final")]:
            while any(entry["op_code"] == CREATE_TRIAL and studies[entry["study_id"]] == study for entry in found):
                drop_trial(found, study, 0)


def test_scores_that_were_removed_are_not_made_again(images: Path, runs: Path, scored: list[Scoring]) -> None:
    run(images, runs)
    for name in ("test.json", "summary.json"):
        (runs / "small" / name).unlink()
    forget_finals(runs)
    scored.clear()
    said = run(images, runs, code=2, resources={**MADE_UP, "cpus_per_trial": 2})
    assert "small was scored after the opening of 20" in said
    assert "test.json does not have the scores; restore it from a copy, or open the test classes again with" in said
    assert not scored
    said = printed("test", "small", "--runs", runs, "--again", "they were lost")
    assert "this test set: 2 openings by 1 search" in said
    assert scored


@pytest.mark.parametrize("left", ["test/", "the journal", "the ledger"])
def test_an_opening_whose_scores_were_removed_is_not_called_sealed(
    images: Path, runs: Path, state: Path, scored: list[Scoring], left: str
) -> None:
    """The folder of its results, the journal or the ledger still has it; with the ledger, ``--again`` is possible."""
    run(images, runs)
    for name in ("test.json", "summary.json"):
        (runs / "small" / name).unlink()
    if left != "the ledger":
        for folder in (runs, state / "holdout"):
            (folder / "test_openings.jsonl").unlink()
    if left == "test/":
        rewrite(runs / "small" / "study.journal", without_openings)
    else:
        shutil.rmtree(runs / "small" / "test")
    scored.clear()
    compared = holdout_here("compare", "small", "--runs", runs, code=1).stdout
    assert re.match("small: test.json openings lack [0-9a-f]{12}; restore it and the ledger from a copy", compared)
    assert "sealed" not in compared
    assert "Next: `holdout verify small` names what is missing" in compared
    (status,) = json_of("status", "--runs", runs)
    assert status["state"] == "opened without scores"
    said = verified(runs, "small")
    assert "test.json openings lack" in said
    assert "sealed" not in said
    for words in (("test", "small"), ("run", runs.parent / "small.yaml")):
        said = refusal(*words, "--runs", runs)
        assert ("test.json openings lack" in said) == (left != "the ledger")
    assert not scored


def test_openings_before_a_choice_are_in_every_table(images: Path, runs: Path, tmp_path: Path) -> None:
    """Neither a later opening nor another one of the same choice is before it."""
    run(images, runs)
    elsewhere, told = tmp_path / "elsewhere", "openings of these classes before this choice's"
    said = run(images, elsewhere, "other")
    assert f"this test set: 2 openings by 2 searches, 4 configurations scored; {told}: 1" in said
    said = printed("test", "small", "--again", "to see that it is counted", "--runs", runs)
    assert f"this test set: 3 openings by 2 searches, 4 configurations scored; {told}: 0" in said
    fewer = copied(images, "fewer", lambda number: None if number in (0, 15) else f"{number:02d}")
    assert f"{told}: 3" in run(fewer, elsewhere, "fewer")
    run(images, runs, "third")
    said = printed("compare", "small", "third", "--output", tmp_path / "table.csv", "--runs", runs)
    assert f"{told}: small 0, third 4" in said
    rows = [*csv.DictReader((tmp_path / "table.csv").read_text().splitlines())]
    assert {(row["search"], row["earlier_openings"]) for row in rows if row["role"] and not row["against_role"]} == {
        ("small", "0"), ("third", "4"),
    }  # fmt: skip
    comparison = compare([Records(RunFolder(elsewhere, "other"))])
    assert f"{told}: 1" in search_run(comparison, RunFolder(elsewhere, "other"), "").tags["holdout.openings"]


@pytest.mark.parametrize("again", [False, True])
def test_an_opening_is_resumed_after_repair_with_its_own_final_trainings(
    images: Path, runs: Path, scored: list[Scoring], again: bool
) -> None:
    """One image is damaged after its header, where only decoding finds it; it is replaced by another image."""
    path, journal = images / "class-09" / "03.png", RunFolder(runs, "small").journal
    whole = path.read_bytes()
    path.write_bytes(whole[:300] + bytes(200) + whole[500:])
    refused = run(images, runs, code=2)
    assert "1 of 40 images cannot be read: class-09/03.png" in refused
    assert "The trainings are kept and this opening counts once; repair this and run the same command" in refused
    path.write_bytes((images / "class-09" / "02.png").read_bytes())
    trained, kept = [trial.user_attrs for trial in stored(runs, "small", "pnp@final")], journal.read_bytes()
    forget_finals(runs)
    said = run(images, runs, code=2)
    assert "The final trainings of small/pnp@final are not those for which the test classes were opened at 20" in said
    assert f"restore {journal} from a copy, or open the test classes again with `holdout" in said
    assert not scored
    assert not list(runs.rglob("test.json"))
    if again:
        said = printed("test", "small", "--runs", runs, "--again", "the studies were lost")
    else:
        journal.write_bytes(kept)
        said = run(images, runs)
    assert "this test set: 1 opening by 1 search" in said
    assert len(Ledger(runs / "test_openings.jsonl").openings()) == 1
    assert [trial.user_attrs for trial in stored(runs, "small", "pnp@final")] == trained, "the same trainings"
    assert len(scored) == len(trained) > 0
    assert "class-09/03.png" in read_contents(scored[0].images.make()).image_keys


def test_a_second_opening_needs_a_reason_and_is_counted(images: Path, runs: Path) -> None:
    run(images, runs)
    openings, first = runs / "test_openings.jsonl", summary(runs, "small")
    before = openings.read_text()
    done = holdout_here("test", "small", "--runs", runs, code=2)
    assert "were already opened" in plain(done.stderr)
    assert done.stdout.startswith("Recommended: ")
    assert "needs a reason" in refusal("test", "small", "--again", " ", "--runs", runs)
    assert openings.read_text() == before
    done = holdout_here("test", "small", "--again", "to see that it is counted", "--runs", runs)
    assert "this test set: 2 openings by 1 search" in plain(done.stdout)
    after = summary(runs, "small")
    assert after["test_opened"] == 2
    assert after["losses"] == first["losses"], "the first result stands"


def test_a_kill_after_the_scores_and_before_their_line(images: Path, runs: Path, state: Path) -> None:
    run(images, runs)
    ledgers = [folder / "test_openings.jsonl" for folder in (runs, state / "holdout")]
    lines = [ledger.read_text().splitlines(keepends=True) for ledger in ledgers]
    for ledger, content in zip(ledgers, lines, strict=True):
        ledger.write_text("".join(content[:-1]))
    run(images, runs)
    for ledger, content in zip(ledgers, lines, strict=True):
        last, before = json.loads(ledger.read_text().splitlines()[-1]), json.loads(content[-1])
        assert [last[key] for key in ("scored", "selection", "scores")] == [
            before[key] for key in ("scored", "selection", "scores")
        ]


def test_test_images_among_the_training_images(images: Path, runs: Path, scored: list[Scoring]) -> None:
    for number in (8, 11):
        for name in ("00.png", "04.png"):
            shutil.copy(images / f"class-{number:02d}" / name, images / f"class-{number - 8:02d}" / f"t{name}")
    said = run(images, runs, code=2)
    assert "4 of the 40 test images also train or validate (class-08/00.png, " in said
    assert "split.allow_overlap is 0: remove them and search under a new name, or set it to 4" in said
    assert not scored
    assert "4 of the 40 test images" in run(images, runs, code=2, split={"allow_overlap": 3})
    told = "small: 4 test items are also among the training or validation items (split.allow_overlap)"
    assert told in run(images, runs, split={"allow_overlap": 4})
    assert told in printed("compare", "small", "--runs", runs)
    found = summary(runs, "small")
    assert (found["test_overlap"], found["test_opened"]) == (4, 1)
    assert len(Ledger(runs / "test_openings.jsonl").openings()) == 1


def test_a_search_warns_of_broken_test_images_and_runs(images: Path, runs: Path) -> None:
    (images / "class-15" / "00.png").write_bytes(b"garbage")
    told = "small: 1 of 40 images of test classes looks damaged: class-15/00.png (not an image of a known format)."
    assert told in run(images, runs, stages=["search", "select"])
    assert (runs / "small" / "selection.json").exists(), "the test images are not needed before the test"
    assert not Ledger(runs / "test_openings.jsonl").openings(), "checking a file does not open the test set"


def test_studies_metrics_and_objective_are_those_that_were_frozen(
    images: Path, runs: Path, scored: list[Scoring]
) -> None:
    run(images, runs, stages=["search", "select"])
    journal, file = RunFolder(runs, "small").journal, runs / "small" / "search.yaml"
    whole = journal.read_bytes()
    with rewritten(journal) as found:
        named = [entry for entry in of_trial(found, "small/pnp", 0) if entry.get("param_name") == "temperature"]
        named[0]["param_value_internal"] = 0.0123
    said = refusal("test", "small", "--runs", runs)
    assert "The study small/pnp was changed after the choice of small was frozen" in said
    journal.write_bytes(whole)
    content = yaml.safe_load(frozen := file.read_text())
    other = {**content, "search": {**content["search"], "objective": "recall_at_1"}}
    content["metrics"]["test"] = ["precision_at_1"]
    for changed in (other, content):
        file.write_text(yaml.safe_dump(changed))
        said = refusal("test", "small", "--runs", runs)
        assert "what small/pnp began with was replaced (settings); restore it" in said
    assert not scored
    assert not Ledger(runs / "test_openings.jsonl").openings()
    file.write_text(frozen)
    holdout_here("test", "small", "--runs", runs)
    assert {task.metrics for task in scored} == {("recall_at_1", "map_at_r")}
    assert Selection.load(runs / "small" / "selection.json").test_metrics == ("recall_at_1", "map_at_r")


@pytest.fixture
def campaign(images: Path, runs: Path) -> Callable[..., str]:
    """Return a function that runs a campaign over two temperatures of PNP and returns its output."""

    def carry_out(*settings: str, code: int = 0, **changes: Any) -> str:
        base = {key: value for key, value in small_search(images, **SMALL).items() if key != "name"}
        labels = {"cold": {"space.pnp.temperature": 0.01}, "warm": {"space.pnp.temperature": 0.02}}
        content = {
            "name": "lot",
            "study": "a sweep",
            "base": base,
            "vary": {"temperature": labels},
            "table": {"rows": ["temperature"]},
            **changes,
        }
        file = runs.parent / "lot.yaml"
        file.write_text(yaml.safe_dump(content))
        options = [word for setting in settings for word in ("--set", setting)]
        done = holdout_here("run", file, "--runs", runs, *options, code=code)
        return plain(done.stdout + done.stderr)

    return carry_out


def test_a_member_of_a_campaign_by_hand(campaign: Callable[..., str], runs: Path) -> None:
    for command, stages in (("select", "[search]"), ("test", "[search, select]")):
        campaign(f"base.stages={stages}")
        said = refusal(command, "lot-cold", "--runs", runs)
        assert "lot-cold is a search of the campaign lot, whose searches are chosen and tested together" in said
        again = holdout_here("run", runs / "lot-cold" / "search.yaml", "--set", "stages=[search, select, test]",
                             "--runs", runs, code=2)  # fmt: skip
        assert "lot-cold is a search of the campaign lot" in plain(again.stderr)
    assert not (runs / "lot-cold" / "test.json").exists()
    said = campaign("base.stages=[search, select]", "vary.temperature.hot={space.pnp.temperature: 0.03}", code=2)
    assert "lot-hot: the configurations of lot-cold, lot-warm are frozen already" in said


def test_a_campaign_is_no_choice_and_its_table_is_frozen(campaign: Callable[..., str], runs: Path) -> None:
    said = campaign()
    assert "not for choosing: temperature varies on the test classes" in said
    assert "chosen after opening" not in said
    assert "this test set: 1 opening by 2 searches, 4 configurations scored" in said
    warnings = json.loads((runs / "lot" / "campaign.json").read_text())["warnings"]
    assert [sentence.partition(":")[0] for sentence in warnings] == ["not for choosing"]
    alone = printed("compare", "lot-cold", "--runs", runs)
    assert "chosen after opening" in alone, "a member is not the table that was frozen"
    said = campaign(table={"rows": ["temperature"], "metrics": ["map_at_r"]})
    assert "chosen after opening: map_at_r; the metrics frozen with the choice were recall_at_1" in said
    assert "chosen after opening" not in campaign()


# When the test stays sealed: a choice that may be luck, one that nothing improves, and one that did not change.


def doubtful(folder: Path, **changes: Any) -> Path:
    """Write a search of one trial whose choice rests on two validation classes alone."""
    content = {
        **GLYPHS, "name": "small", "losses": ["pnp"], "search": {"trials": 1}, "final": {"seeds": 1},
        "selection": {"finalists": 1, "seeds": 1, "on": "split"}, "resources": {"engine": "in_process"}, **changes,
    }  # fmt: skip
    return write_search(folder / "small.yaml", content)


def test_a_choice_that_may_be_luck_is_tested_on_demand_as_at_once(tmp_path: Path) -> None:
    file, kept = doubtful(tmp_path), []
    for way in (["--yes"], [None, "--yes"]):
        runs = tmp_path / f"runs-{len(way)}"
        folder = RunFolder(runs, "small")
        for answer in way:
            said = plain(holdout_here("run", file, "--runs", runs, *filter(None, [answer])).stderr)
            refused = "rests on 2 validation classes alone and may be mostly luck, and a test set" in said
            assert refused == ("repeat the command with --yes to open it" in said) == (answer is None)
            assert folder.selection.exists()
            assert folder.test.exists() == (answer is not None)
        holdout_here("verify", "small", "--runs", runs)
        ((score,),) = [opening["scores"] for opening in json.loads(folder.test.read_text())["openings"]]
        kept.append((json.loads(folder.split.read_text())["digest"], score["metrics"]))
    assert kept[0] == kept[1]


def test_a_lost_split_is_written_as_it_was_or_refused(images: Path, runs: Path) -> None:
    run(images, runs, stages=["search", "select"])
    split = RunFolder(runs, "small").split
    begun = split.read_bytes()
    split.unlink()
    run(images, runs, stages=["search", "select"])
    assert split.read_bytes() == begun
    split.unlink()
    shutil.copy(images / "class-00" / "00.png", images / "class-01" / "99.png")
    assert "what small/pnp began with was replaced (split); restore it" in run(images, runs, code=2)
    assert not Ledger(RunFolder(runs, "small").openings).openings()


class MovesFolder(MadeUp):
    """Moves the folder of the search away while trial 1 runs."""

    def before_trial(self, job: RunningTrial) -> None:
        folder = Path(job.spec.directory).parents[2]
        if job.number == 1 and not folder.with_name("moved").exists():
            folder.rename(folder.with_name("moved"))


def test_a_search_whose_folder_is_moved_ends(images: Path, runs: Path) -> None:
    said = run(images, runs, resources={"engine": f"{__name__}:MovesFolder"}, code=1)
    assert f"The folder of the search small was moved or removed while it ran. Put it back as {runs}/small" in said
    assert not RunFolder(runs, "small").config.exists(), "nothing but the checkpoint of the trial is there"


def test_stages_of_the_file_are_an_answer(tmp_path: Path) -> None:
    file, runs = doubtful(tmp_path, stages=["search", "select", "test"]), tmp_path / "runs"
    said = printed("run", file, "--runs", runs)
    assert RunFolder(runs, "small").test.exists()
    assert "so the choice may be mostly luck; selection.on: halves confirms" in said


def chosen_as(number: int | None = 3, **params: Any) -> Selection:
    recommended = Recommendation(loss="pnp", number=number, basis="")
    chosen = Confirmation(
        number=3, params=params, searched=(), values=(), classes={}, best_epochs=(), failed=0, measured={}
    )
    return replace(frozen_selection("small", ["pnp"]), recommended=recommended, chosen={"pnp": chosen})


@pytest.mark.parametrize(
    ("when", "number", "sealed"), [("if_better", None, True), ("if_better", 0, False), ("always", None, False)]
)
def test_a_network_without_training_that_nothing_beats(
    opened: Opened, when: str, number: int | None, sealed: bool
) -> None:
    search = opened(losses=["pnp"], final={"test": when})
    folder = search.folder
    for records in (search, Records(folder)):
        assert records.stays_sealed is None, "nothing is chosen yet"
        chosen_as(number).save(folder.selection)
        assert (records.stays_sealed is not None) == sealed
        write_json(folder.test, {"openings": []})
        assert records.stays_sealed is None, "it is tested"
        folder.selection.unlink()
        folder.test.unlink()
