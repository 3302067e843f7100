"""``holdout verify``: an untouched search passes, and one table holds every change of its records and what names it."""
# ruff: noqa: E501

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from optuna.trial import TrialState
from PIL import Image
from support.commands import holdout_here, plain, stored
from support.finished_search import finish, run_here
from support.journals import SET_STATE, SET_VALUE, of_trial, rewrite
from support.kinds import Finished, FinishedCampaign
from support.refusals import contents
from support.small_search import GLYPHS, draw_glyphs, small_search
from support.tampered import Change, Copied, array, entry
from support.without_ray import only_records

from search.driver.verify import check_retrained, trial_to_retrain
from search.plan.records import Records
from search.plan.runs import RunFolder
from search.selection.ledger import NAME
from search.selection.ledger_file import LedgerFile
from search.selection.scoring import score
from search.selection.selection import Selection
from trainables.data.sets.folders import Folder

TRAINING = {"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_glyphs(tmp_path_factory.mktemp("glyphs") / "images", each=5)


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search; tests must not change it."""
    few = {"selection": {"finalists": 1, "seeds": 1}, "final": {"seeds": 1}, "search": {"trials": 6}}
    content = small_search(images, training=TRAINING, metrics={"test": ["recall_at_1", "map_at_r", "nmi"]}, **few)
    return finish(tmp_path_factory.mktemp("finished") / "runs", content)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Copied:
    return Copied(finished, tmp_path / "runs")


def verified(runs: Path, *more: str, code: int = 0, name: str = "small") -> str:
    """Run the command and return its output on both streams."""
    done = holdout_here("verify", name, "--runs", runs, *more, code=code)
    return done.stdout + plain(done.stderr)


def test_an_untouched_search_passes_and_nothing_is_written(finished: Path) -> None:
    before = contents(finished)
    with mock.patch.object(Folder, "classes", autospec=True, side_effect=Folder.classes) as listing:
        *lines, verdict = holdout_here("verify", "small", "--runs", finished).stdout.splitlines()
    assert verdict == "Verified."
    assert 0 < listing.call_count < 8, "not for each trial: to list the images of ten thousand classes takes a second"
    assert contents(finished) == before
    assert len(lines) > 20
    assert all(line.startswith("ok  ") for line in lines), lines


def test_an_untouched_campaign_passes(lot: FinishedCampaign) -> None:
    lines = verified(lot.runs, name="lot").splitlines()
    assert [line for line in lines if not line.startswith("ok  ")] == ["Verified."]
    for name in ("lot-fixed", "lot-folds", "lot-all"):
        assert f"ok  {name}: its file, from campaign.yaml" in lines
    assert lines[-2].startswith("ok  campaign.json")


# Changes of records.


def trial(study: str, number: int | str, code: int, **changes: Any) -> Change:
    """Change the last operation with this code of a trial, given by its number or its state."""

    def change(copied: Copied) -> None:
        found = number if isinstance(number, int) else copied.state(study, number)
        copied.trial(study, found, code, lambda entry: entry.update(changes))

    return change


def epoch(study: str, number: int, epoch: int, **changes: Any) -> Change:
    """Change values of an epoch's record."""
    return lambda copied: copied.epoch(study, number, epoch, **changes)


def attribute(study: str, number: int, key: str, change: Callable[[Any], Any]) -> Change:
    """Change a user attribute of a trial."""
    return lambda copied: copied.attribute(study, number, key, change)


def ledger(change: Callable[[list[str]], list[str]]) -> Change:
    """Change the lines of the ledger."""

    def changed(copied: Copied) -> None:
        path = copied.runs / NAME
        path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))

    return changed


def classes(change: Callable[[list[float]], list[float]]) -> Change:
    """Change the values by class of the first epoch, the best one so far."""

    def of_record(record: Any) -> Any:
        changed = change(list(record["classes"].values()))
        return {**record, "classes": dict(zip(record["classes"], changed, strict=False))}

    return attribute("pnp@confirm", 0, "epoch:000001", of_record)


def _chosen_again(copied: Copied) -> None:
    """Freeze another choice with a digest that matches."""
    selection = Selection.load(path := copied.path / "selection.json")
    object.__setattr__(selection, "chosen", {**selection.chosen, "pnp": selection.chosen["proxy_anchor"]})
    selection.save(path)


def _chained_again(copied: Copied) -> None:
    """Change the reason of the opening, and all digests of the chain."""
    found = LedgerFile(copied.runs / NAME)
    opening, *later = found.entries().values()
    found.path.unlink()
    found.append([{**opening, "reason": "another"}, *later], lambda name: None)


def _line_of_a_member(lines: list[str]) -> list[str]:
    """Remove a member from the line of its opening."""
    contents = [json.loads(line) for line in lines]
    line = next(line for line in contents if "lot-folds" in line.get("selections", {}))
    del line["selections"]["lot-folds"]
    return [json.dumps(line) for line in contents]


def _swapped_seeds(study: str) -> Change:
    def change(copied: Copied) -> None:
        first, *_, last = copied.trials(study)
        copied.attribute(study, first.number, "seed", lambda _: last.user_attrs["seed"])
        copied.attribute(study, last.number, "seed", lambda _: first.user_attrs["seed"])

    return change


def _finalist(copied: Copied) -> int:
    """Return the number of the trial that is confirmed first."""
    number: int = copied.trials("pnp@confirm")[0].user_attrs["source_trial"]
    return number


def _of_trial_1(copied: Copied) -> None:
    other = next(copied.path.glob("trials/pnp/0001/**/best.safetensors"))
    copied.write(next(copied.path.glob("trials/pnp/0000/**/best.safetensors")), other.read_bytes())


OPENING, SCORE, BASELINE = "openings/0", "openings/0/scores/0", "openings/0/baselines/0"
MEAN = "epoch 1: mean of the classes by query"
# fmt: off
SEARCH: dict[str, tuple[Change, str]] = {
    # Studies.
    "a value, a little": (lambda c: c.trial("pnp", 0, SET_STATE, lambda line: line.update(values=[line["values"][0] + 1e-12])), "pnp trial 0: value"),
    "a value after an epoch": (trial("pnp", 0, SET_VALUE, intermediate_value=0.01), "pnp trial 0: values.4"),
    "an epoch's other metric": (lambda c: c.metric("pnp", 1, 1, "recall_at_1", 0.123), "selection.json studies"),
    "an epoch's number": (attribute("pnp", 0, "epoch:000002", lambda record: {**record, "epoch": 3}), "pnp trial 0: epochs.1.1: 3 is stored, 2 recomputed"),
    "an epoch's model": (epoch("pnp", 0, 1, checkpoint=None), "epoch 1: metrics, checkpoint, classes.1: false"),
    "swapped seeds": (_swapped_seeds("pnp"), "pnp trial 0: seed"),
    "a parameter": (lambda c: c.param("pnp", _finalist(c), "temperature", lambda line: line.update(param_value_internal=0.0123)), "pnp@confirm trial 0: params.temperature"),
    "a range": (lambda c: c.param("pnp", 2, "temperature", lambda line: line.update(distribution=line["distribution"].replace('"high": ', '"high": 1'))), "the range of temperature"),
    "a dropped trial, the last": (lambda c: c.drop("pnp", 5), "5 trials are stored and 6 were planned"),
    "a pruned trial that is complete": (trial("pnp", "PRUNED", SET_STATE, state=TrialState.COMPLETE), "epochs"),
    "why a trial was pruned": (lambda c: c.attribute("pnp", c.state("pnp", "PRUNED"), "outcome", lambda text: text.replace("half", "third")), "outcome"),
    "a replicate": (lambda c: rewrite(c.journal, lambda found: of_trial(found, "small/pnp", 1)[0]["user_attrs"].update(replicate_of=0)), "pnp trial 1: replicate_of"),
    "the split of the study": (lambda c: c.study_attribute("pnp", "split_digest", "0" * 64), "pnp.split_digest"),
    "the sessions": (lambda c: c.study_attribute("proxy_anchor", "sessions", [0.0]), "summary.json time"),
    "a confirmation's configuration": (attribute("pnp@confirm", 0, "source_trial", lambda number: number + 1), "pnp@confirm"),
    "a dropped confirmation, the last": (lambda c: c.drop("pnp@confirm", len(c.trials("pnp@confirm")) - 1), "pnp@confirm trials with"),
    "a value by class": (classes(lambda values: [values[0] + 1e-6, *values[1:]]), MEAN),
    "two values by class": (classes(lambda values: [values[1], values[0], *values[2:]]), "selection.json"),
    "a missing class": (classes(lambda values: values[:-1]), "epoch 1: classes"),
    "no values by class": (epoch("pnp@confirm", 0, 1, classes=None), "epoch 1: metrics, checkpoint, classes.2"),
    "a final training's loss": (epoch("pnp@final", 0, 2, loss=0.5), "small/pnp@final was changed"),
    # Files.
    "the split's seed": (entry("search.yaml", "split/seed", 1), "split.json"),
    "the learning rate": (entry("search.yaml", "training/lr", 0.002), "settled_digest"),
    "a validation class": (lambda c: c.json("split.json", lambda split: split["validation"].append(split["train"].pop())), "split.json"),
    "the choice": (entry("selection.json", "chosen/pnp/number", 4), "selection.json"),
    "the choice, frozen again": (_chosen_again, "selection.json"),
    "the exported model": (lambda c: shutil.copy(c.path / "models/proxy_anchor/model.safetensors", c.path / "models/pnp/"), "models/pnp/ model.safetensors"),
    "an unexpected file of a model": (lambda c: (c.path / "models/pnp/more.bin").touch(), "models/pnp/ more.bin:"),
    "the description of the exported model": (entry("models/pnp/model.json", "origin/trial", 1), "models/pnp/model.json origin.trial"),
    "the best model of another trial": (_of_trial_1, "best.safetensors: origin.trial: 1 is stored, 0 recomputed"),
    "a removed line of the ledger": (ledger(lambda lines: lines[1:]), "Line 1 of the ledger"),
    "no images that were opened": (ledger(lambda lines: lines[:1]), "test.json openings"),
    "a line that is chained again": (_chained_again, "reason"),
    "the images of the ledger": (lambda c: c.write(c.opened_images, b"0" * 160), "images of an opened test set"),
    "a test metric": (entry("test.json", f"{SCORE}/metrics/recall_at_1", 0.99), "recall_at_1"),
    "a test metric without per-image results": (entry("test.json", f"{SCORE}/metrics/nmi", 0.99), "nmi"),
    "a scored seed": (entry("test.json", f"{SCORE}/seed", 1), "scores.0.seed"),
    "a dropped score": (entry("test.json", f"{OPENING}/scores", lambda scores: scores[:-1]), "scores"),
    "the time of the scoring": (entry("test.json", f"{OPENING}/finished", 0.0), "digest"),
    "the number of test images that trained": (entry("test.json", f"{OPENING}/overlap", 3), "overlap with the training images: 3 is stored, 0 recomputed"),
    "a dropped opening": (entry("test.json", "openings", []), "test.json openings"),
    "an image's name": (array("keys", 3, "another"), "keys"),
    "an image's class": (array("labels", 3, 5), "labels"),
    "half a file of results": (lambda c: c.write(c.results[0], c.results[0].read_bytes()[:500]), "@final-0.npz is damaged, or another version wrote it (BadZipFile"),
    "results without classes": (lambda c: c.arrays(lambda arrays: arrays.pop("labels")), "@final-0.npz is damaged, or another version wrote it (KeyError"),
    "a warning without openings": (lambda c: c.json("trained_on_opened.json", dict.clear), "trained_on_opened.json is damaged"),
    "a file of no opening": (lambda c: (c.path / "test/more.npz").touch(), "test/more.npz is of no opening"),
    "a file that an opening did not write": (lambda c: (c.results[0].parent / "retrieval/more.npz").touch(), "retrieval/more.npz is of no opening"),
    "no ledger": (lambda c: (c.runs / NAME).unlink(), f"{NAME} lacks the scores of"),
    "no scores and no ledger": (lambda c: [path.unlink() for path in (c.path / "test.json", c.path / "summary.json", c.runs / NAME)], "test.json openings lack"),
    "a neighbour": (array("neighbours_QK", (3, 0), 3, lambda c: c.rankings[0]), "@final-0.npz was changed"),
    "a thumbnail": (array("pictures", 20, lambda pixels: pixels ^ 1, lambda c: c.thumbnails), "thumbnails.npz was changed"),
    "a model": (lambda c: c.write(c.models[0], c.models[0].read_bytes()[:-1] + b"!"), "The scored model"),
    "a mean": (entry("summary.json", "losses/pnp/confirmed/mean", 0.99), "summary.json losses.pnp.confirmed.mean: 0.99 is stored"),
}
LOT: dict[str, tuple[Change, str]] = {
    "a cell": (entry("campaign.json", "cells/0/mean", 0.99), "campaign.json cells.0.mean"),
    "no result": (lambda c: (c.path / "campaign.json").unlink(), "campaign.json is missing, and all searches of lot are done"),
    "its folds": (lambda c: c.text("campaign.yaml", "split.folds: 2", "split.folds: 3"), "lot-folds search.yaml split.folds"),
    "a line of the ledger without a member": (ledger(_line_of_a_member), "of the ledger of test openings"),
    "a value of a fold": (lambda c: Copied.attribute(_member(c), "pnp", 0, "epoch:002:000001", lambda record: {**record, "metrics": dict.fromkeys(record["metrics"], 0.5)}), "lot-folds/pnp trial 0"),
}
KINDS: dict[str, tuple[str, Change, str]] = {
    "a score of another query": ("groups, queries and a gallery", array("map_at_r", 0, float("nan")), "map_at_r queries"),
    **{f"{name} of a test list": ("test lists", entry("test.json", f"{SCORE}/metrics/{name}", 0.123), name) for name in ("recall_at_1-small", "nmi-medium", "dists_intra-large")},
    **{f"a network without training, {name}": ("frozen backbone", change, says) for name, change, says in (
        ("validated", entry("baselines.json", "validation/untrained/map_at_r", 0.9), "baselines.json was changed"),
        ("removed", lambda c: (c.path / "baselines.json").unlink(), "baselines.json is missing"),
        ("its whitening", lambda c: (c.path / "whitened.safetensors").write_bytes(b""), "whitened.safetensors is missing"),
        ("tested", entry("test.json", f"{BASELINE}/metrics/map_at_r", 0.99), "untrained@baseline.npz map_at_r: 0.99 is stored"),
        ("not tested", entry("test.json", f"{OPENING}/baselines", []), "baselines: "),
        ("per image", array("map_at_r", ..., lambda values: values * 0.5, lambda c: next(c.path.glob("test/*/untrained@*.npz"))), "untrained@baseline.npz map_at_r: "),
    )},
}
# fmt: on
"""What is changed, and the words of the check that names it, in a search, a campaign, and in searches of other kinds."""


def _member(copied: Copied) -> Copied:
    copied.name, copied.path = "lot-folds", copied.runs / "lot-folds"
    return copied


@pytest.mark.parametrize(("change", "says"), SEARCH.values(), ids=SEARCH)
def test_one_change_is_found(copied: Copied, change: Change, says: str) -> None:
    change(copied)
    said = verified(copied.runs, code=1)
    assert says in said.splitlines()[-1], said


@pytest.mark.parametrize(("change", "says"), LOT.values(), ids=LOT)
def test_one_change_in_a_campaign_is_found(lot: FinishedCampaign, tmp_path: Path, change: Change, says: str) -> None:
    change(copied := Copied(lot.runs, tmp_path / "runs", "lot"))
    assert says in verified(copied.runs, code=1, name="lot").splitlines()[-1]


@pytest.mark.parametrize(("kind", "change", "says"), KINDS.values(), ids=KINDS)
def test_one_change_in_another_kind_is_found(
    kinds: Callable[[str], Finished], tmp_path: Path, kind: str, change: Change, says: str
) -> None:
    change(copied := Copied(kinds(kind).runs, tmp_path / "runs", kinds(kind).name))
    assert says in verified(copied.runs, "--trust-code", code=1, name=copied.name).splitlines()[-1]


def _line(text: str, old: str, new: str) -> str:
    head, found, tail = text.rpartition(old)
    assert found
    return head + new + tail


@pytest.mark.parametrize(
    ("kind", "file", "change", "says"),
    [
        ("groups, queries and a gallery", "x.csv", lambda text: _line(text, "query", "gallery"), "marks.parts"),
        ("groups, queries and a gallery", "x.csv", lambda text: _line(text, ",1", ",7"), "marks.cameras"),
        ("groups, queries and a gallery", "x.csv", lambda text: text.replace("shop", "alone", 1), "split.json"),
        ("superclasses", "sop/Ebay_test.txt", lambda text: re.sub(r"(?m)^(\d+ 9) 1 ", r"\1 9 ", text), "superclass"),
    ],
    ids=["part", "camera", "group", "superclass"],
)
def test_another_list_is_found(
    kinds: Callable[[str], Finished], kind: str, file: str, change: Callable[[str], str], says: str
) -> None:
    path = kinds(kind).runs.parent / "data" / file
    before = path.read_text()
    try:
        path.write_text(change(before))
        assert path.read_text() != before
        assert says in verified(kinds(kind).runs, code=1).splitlines()[-1]
    finally:
        path.write_text(before)


def _blank(images: Path, name: str) -> None:
    Image.new("RGB", (20, 20)).save(images / name / "03.png")


def _of_the_same_time(images: Path, name: str, other: str) -> None:
    """Replace an image; the cache of decoded images compares sizes and times, and verify decodes the images again."""
    times = (images / name / "03.png").stat()
    (images / name / "03.png").write_bytes((images / other / "03.png").read_bytes())
    os.utime(images / name / "03.png", ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda images, classes: _blank(images, classes[0]), "split.json"),
        (lambda images, classes: _blank(images, classes[-1]), "images"),
        (lambda images, classes: (images / classes[0]).rename(images / "another"), "split.json"),
        (lambda images, classes: shutil.copy(images / classes[0] / "03.png", images / classes[1]), "split.json"),
        (lambda images, classes: shutil.rmtree(images), "dataset.root"),
        (lambda images, classes: _of_the_same_time(images, *classes[:2]), "split.json"),
    ],
    ids=["a training image", "a test image", "a name", "a moved one", "none", "one of the same time"],
)
def test_other_images_are_found(
    finished: Path, images: Path, tmp_path: Path, change: Callable[[Path, list[str]], object], says: str
) -> None:
    shutil.copytree(images, tmp_path / "kept")
    try:
        change(images, sorted(path.name for path in images.iterdir()))
        assert says in verified(finished, code=(0 if says == "dataset.root" else 1)).splitlines()[-1]
    finally:
        shutil.rmtree(images, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", images)


@pytest.mark.parametrize("of_user", [False, True])
def test_the_ledger_that_lacks_a_line_is_named(copied: Copied, state: Path, of_user: bool) -> None:
    own, users = copied.runs / NAME, state / "holdout" / NAME
    users.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(own, users)
    shorter = users if of_user else own
    shorter.write_text("".join(shorter.read_text().splitlines(keepends=True)[:-1]))
    said = verified(copied.runs, code=0 if of_user else 1)  # the user may have used another machine meanwhile
    assert f"{shorter}:1linethattheotherledgerhas" in "".join(said.split())


def test_a_read_only_folder_is_read(copied: Copied) -> None:
    (copied.path / ".driver.lock").unlink(missing_ok=True)
    if subprocess.run(["mount", "--bind", copied.runs, copied.runs], check=False, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", copied.runs], check=True)
        for words in (("verify", "small"), ("status",), ("trials", "small")):
            holdout_here(*words, "--runs", copied.runs)
        assert not (copied.path / ".driver.lock").exists()
    finally:
        subprocess.run(["umount", "--lazy", copied.runs], check=True)


def test_a_retrained_trial_is_the_same_bit_for_bit(finished: Path) -> None:
    (pruned, *_) = [trial.number for trial in stored(finished, "small", "pnp") if trial.state == TrialState.PRUNED]
    before = contents(finished)
    for number, epochs in ((f"pnp:{pruned}", 2), ("pnp@final:0", 4)):
        study, _, found = number.partition(":")
        said = verified(finished, "--retrain", number)
        assert f"small/{study} trial {found}: {epochs} epochs retrained, bit for bit the same" in said
    assert contents(finished) == before


def test_retraining_finds_a_changed_loss_and_count(images: Path, tmp_path: Path) -> None:
    """Before the choice is frozen, no digest covers them, so only retraining finds the change."""
    content = small_search(images, training=TRAINING, losses=["triplet"], search={"trials": 1}, stages=["search"])
    finish(tmp_path / "runs", content)
    for number, change, found in (
        (1, {"loss": 0.5}, "loss: 0.5 is stored"),
        (2, {"used": {"triplets": 7}}, "used.triplets: 7 is stored"),
    ):
        copied = Copied(tmp_path / "runs", tmp_path / f"copied-{number}")
        copied.epoch("triplet", 0, 2, **change)
        verified(copied.runs)
        said = verified(copied.runs, "--retrain", "triplet:0", code=1)
        assert f"small/triplet trial 0 epoch 2 retrained, {found}" in said


def test_scores_that_no_model_has_are_found(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every digest and line of the ledger is that of the raised scores."""

    def raised(function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        results = [function(argument) for argument in arguments]
        for scores, files in chain.from_iterable(results) if function is score else ():
            with np.load(io.BytesIO(files[scores["per_image"]])) as stored:
                arrays = {**stored, "map_at_r": np.minimum(1, stored["map_at_r"] + 0.25)}
            scores["metrics"]["map_at_r"] = float(arrays["map_at_r"].mean())
            np.savez_compressed(content := io.BytesIO(), **arrays)
            files[scores["per_image"]] = content.getvalue()
        return results

    monkeypatch.setattr("support.finished_search.in_turn", raised)
    few = {"losses": ["pnp"], "final": {"seeds": 1}, "search": {"trials": 1}, "metrics": {"test": ["map_at_r"]}}
    runs = finish(tmp_path / "runs", small_search(images, training=TRAINING, **few))
    assert "pnp@final-0.npz scored again, map_at_r" in verified(runs, code=1)
    stored_search = Records(RunFolder(runs, "small"))
    *_, last = check_retrained(stored_search, *trial_to_retrain(stored_search, "pnp@final:0"))
    assert "pnp@final-0.npz scored again, map_at_r" in str(last.problem)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("small", "--retrain", "pnp"), "--retrain is 'pnp'; give a loss and a trial's number, as in proxy_anchor:0."),
        (("small", "--retrain", "pnq:0"), "small has no loss 'pnq'"),
        (("small", "--retrain", "pnp:99"), "small/pnp has no trial 99; it has trials 0 to 5."),
        (("smal",), "There is no search 'smal' in"),
    ],
)
def test_what_cannot_be_verified_is_refused_before_the_checks(
    finished: Path, asked: tuple[str, ...], says: str
) -> None:
    name, *more = asked
    said = verified(finished, *more, code=2, name=name)
    assert says in said
    assert "ok" not in said


def test_a_campaign_cannot_be_retrained_and_a_missing_member_is_listed(lot: FinishedCampaign, tmp_path: Path) -> None:
    assert "--retrain: lot is a campaign" in verified(lot.runs, "--retrain", "pnp:0", code=2, name="lot")
    copied = Copied(lot.runs, tmp_path / "runs", "lot")
    copied.text("campaign.yaml", "trials: 2", "trials: 3")  # more trials are asked for; those that are there stay
    (copied.runs / "lot-all").rename(tmp_path / "gone")
    said = verified(copied.runs, name="lot")
    assert "--  lot-all\n" in said
    assert "Verified, but for lot-all" in said


def test_the_result_as_json(finished: Path, copied: Copied) -> None:
    whole = json.loads(verified(finished, "--json"))
    assert whole["ok"]
    assert {check["problem"] for check in whole["checks"]} == {None}
    copied.metric("pnp", 0, 1, "map_at_r", 0.99)
    out, _ = json.JSONDecoder().raw_decode(verified(copied.runs, "--json", code=1))
    assert not out["ok"]
    assert [check["problem"] is None for check in out["checks"]] == [True] * (len(out["checks"]) - 1) + [False]


def test_an_unfinished_search_passes_as_far_as_it_is(images: Path, tmp_path: Path) -> None:
    """Existing records are checked and missing ones are listed, before the first trial and within each stage."""
    content = small_search(
        images, training={**TRAINING, "epochs": 2}, losses=["pnp"], search={"trials": 3, "pruner": "none"},
        selection={"finalists": 1, "seeds": 1},
    )  # fmt: skip
    for epochs in (0, 3, 6, 7):
        (search,) = run_here(tmp_path / "runs", [content], epochs=epochs)
        search.close()
        said = verified(tmp_path / "runs")
        missing = [line for line in said.splitlines() if line.startswith("--  ")]
        assert missing
        assert "Verified, but for " in said
        if epochs:
            copied = Copied(tmp_path / "runs", tmp_path / f"copied-{epochs}")
            copied.metric("pnp", 0, 1, "map_at_r", 0.001234)
            assert "pnp trial 0" in verified(copied.runs, code=1)


def test_without_its_images_the_digests_are_checked(copied: Copied) -> None:
    copied.path.joinpath("search.yaml").write_text(
        re.sub("root: .*", "root: /not/here", (copied.path / "search.yaml").read_text())
    )
    said = verified(copied.runs)
    assert "ok  the scored models: their digests" in said
    assert "Verified, but for what needs the data set (dataset.root is '/not/here'" in said


def _better_copy(copied: Copied) -> None:
    """Raise the value of a copied trial, with all that follows from it in the record."""
    copied.metric("pnp", 1, 1, "map_at_r", 0.99)
    value = {"value": 0.99, "intermediate_values": {"1": 0.99}}
    rewrite(copied.journal, lambda found: of_trial(found, "alike-2/pnp", 1)[0].update(value))


def _of_predecessor(change: Callable[[Copied], object]) -> Change:
    def changed(copied: Copied) -> None:
        copied.name, copied.path = "alike", copied.runs / "alike"
        change(copied)

    return changed


# fmt: off
COPIES: dict[str, tuple[Change, str]] = {
    "a value with all that follows": (_better_copy, "the copy of alike/pnp trial 1: "),
    "a seed": (attribute("pnp", 1, "seed", lambda seed: seed + 1), "the copy of alike/pnp trial 1: seed: "),
    "a loss": (epoch("pnp", 1, 1, loss=0.5), "the copy of alike/pnp trial 1: epoch:000001.loss: 0.5 is stored"),
    "another number": (attribute("pnp", 1, "copied_from", lambda source: {**source, "number": 0}), "copied trials of alike/pnp"),
    "a number that is not there": (attribute("pnp", 1, "copied_from", lambda source: {**source, "number": 9}), "copied trials of alike/pnp"),
    "a model of the predecessor": (_of_predecessor(lambda c: c.write(path := next(c.path.glob("trials/pnp/0001/**/best.safetensors")), path.read_bytes()[:-1] + b"!")), "the model is damaged"),
    "the predecessor's trial": (_of_predecessor(lambda c: c.metric("pnp", 1, 1, "recall_at_1", 0.99)), "the copy of alike/pnp trial 1: "),
}
# fmt: on


def test_the_predecessor_of_a_successor_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_records(monkeypatch)
    for trials in (2, 3):
        content = {**GLYPHS, "name": "alike", "losses": ["pnp"], "search": {"trials": trials}, "final": {"seeds": 1}}
        (tmp_path / "alike.json").write_text(json.dumps({**content, "resources": {"engine": "in_process"}}))
        said = plain(holdout_here("run", tmp_path / "alike.json", "--runs", tmp_path / "runs").stderr)
    assert "alike was tested, so alike-2 continues from its trials with 3 trials" in said
    verified(tmp_path / "runs", name="alike-2")
    record = tmp_path / "runs" / "alike-2" / "predecessor.json"
    said = verified(tmp_path / "runs", name="alike-2")
    assert "ok  alike-2/pnp: 2 trials copied from alike, and their files" in said
    assert "ok  alike-2/pnp@confirm: " in said
    for change, says in COPIES.values():
        copied = Copied(tmp_path / "runs", tmp_path / "changed", "alike-2")
        change(copied)
        assert says in verified(copied.runs, code=1, name="alike-2").splitlines()[-1]
        shutil.rmtree(copied.runs)
    shutil.copytree(record.parent, tmp_path / "alone" / "alike-2")
    said = verified(tmp_path / "alone", name="alike-2")
    assert "--  alike-2/pnp: 2 trials copied from alike, whose folder they are compared with\n" in said
    assert json.loads(record.read_text()) == {"search": "alike"}
    record.write_text('{"search": "other"}')
    said = verified(tmp_path / "runs", code=1, name="alike-2")
    assert 'alike-2/pnp trial 0: copied from: "alike" is stored, "other" recomputed.' in said
