"""``holdout verify``: an untouched search passes, and each change of a campaign or of another kind of search is found."""
# ruff: noqa: E501

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from optuna.trial import TrialState
from PIL import Image
from support.commands import holdout_here, stored
from support.finished_search import finish, run_here
from support.kinds import FinishedCampaign, Kinds
from support.refusals import contents
from support.small_search import small_search
from support.tampered import Change, Copied, array, entry, ledger, verified

from search.records.ledger import NAME
from trainables.data.sets.folders import Folder

VERIFIED = "Verified. Numbers in report.html and model cards are not compared."
TRAINING = {"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16}


def test_an_untouched_search_passes_and_nothing_is_written(finished: Path) -> None:
    before = contents(finished)
    with mock.patch.object(Folder, "classes", autospec=True, side_effect=Folder.classes) as listing:
        *lines, verdict = holdout_here("verify", "small", "--runs", finished).stdout.splitlines()
    assert verdict == VERIFIED
    assert 0 < listing.call_count < 8, "not for each trial: to list the images of ten thousand classes takes a second"
    assert contents(finished) == before
    assert len(lines) > 20
    assert all(line.startswith("ok  ") for line in lines), lines


def test_an_untouched_campaign_passes(lot: FinishedCampaign) -> None:
    lines = holdout_here("verify", "lot", "--runs", lot.runs).stdout.splitlines()
    assert [line for line in lines if not line.startswith("ok  ")] == [VERIFIED]
    for name in ("lot-fixed", "lot-folds", "lot-all"):
        assert f"ok  {name}: its file, from campaign.yaml" in lines
    assert lines[-2].startswith("ok  campaign.json")


def _line_of_a_member(lines: list[str]) -> list[str]:
    """Remove a member from the line of its opening."""
    contents = [json.loads(line) for line in lines]
    line = next(line for line in contents if "lot-folds" in line.get("selections", {}))
    del line["selections"]["lot-folds"]
    return [json.dumps(line) for line in contents]


# fmt: off
OPENING, SCORE, BASELINE = "openings/0", "openings/0/scores/0", "openings/0/baselines/0"
KINDS: dict[str, tuple[str, Change, str]] = {
    "a cell": ("lot", entry("campaign.json", "cells/0/mean", 0.99), "campaign.json cells.0.mean"),
    "no result": ("lot", lambda c: (c.path / "campaign.json").unlink(), "campaign.json is missing, and all searches of lot are done"),
    "its folds": ("lot", lambda c: c.text("campaign.yaml", "split.folds: 2", "split.folds: 3"), "lot-folds search.yaml split.folds"),
    "a line of the ledger without a member": ("lot", ledger(_line_of_a_member), "of the ledger of test openings"),
    "a value of a fold": ("lot", lambda c: c.member("lot-folds").attribute("pnp", 0, "epoch:002:000001", lambda record: {**record, "metrics": dict.fromkeys(record["metrics"], 0.5)}), "lot-folds/pnp trial 0"),
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
"""What is changed in a campaign or a search of another kind, and the words of the check that names it."""


@pytest.mark.parametrize(("kind", "change", "says"), KINDS.values(), ids=KINDS)
def test_one_change_of_a_campaign_or_another_kind_is_found(
    kinds: Kinds, lot: FinishedCampaign, tmp_path: Path, kind: str, change: Change, says: str
) -> None:
    runs, name = (lot.runs, "lot") if kind == "lot" else (kinds(kind).runs, kinds(kind).name)
    change(copied := Copied(runs, tmp_path / "runs", name))
    assert says in verified(copied.runs, "--trust-code", code=1, name=name).splitlines()[-1]


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
def test_another_list_is_found(kinds: Kinds, kind: str, file: str, change: Callable[[str], str], says: str) -> None:
    path = kinds(kind).runs.parent / "data" / file
    before = path.read_text()
    try:
        path.write_text(change(before))
        assert path.read_text() != before
        assert says in verified(kinds(kind).runs, code=1).splitlines()[-1]
    finally:
        path.write_text(before)


def _blank(images: Path, name: str = "") -> None:
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
    said = verified(lot.runs, "--images", str(tmp_path), code=2, name="lot")
    assert "--images: the data set of lot-fixed has no folder and no file" in said
    copied = Copied(lot.runs, tmp_path / "runs", "lot")
    copied.text("campaign.yaml", "trials: 2", "trials: 3")  # more trials are asked for; those that are there stay
    (copied.runs / "lot-all").rename(tmp_path / "gone")
    said = verified(copied.runs, name="lot")
    assert "--  lot-all\n" in said
    assert "Verified, but for lot-all" in said


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


@contextmanager
def moved(path: Path, place: Path) -> Iterator[None]:
    path.rename(place)
    try:
        yield
    finally:
        place.rename(path)


def test_without_its_images_the_digests_are_checked(copied: Copied, images: Path, tmp_path: Path) -> None:
    with moved(images, tmp_path / "elsewhere"):
        said = verified(copied.runs)
        assert f"Verified, but for what needs more than the records (dataset.root is '{images}', which" in said
        assert "Give the folder that holds the images with --images)." in said
        entry("search.yaml", "training/lr", 0.002)(copied)
        assert "search.yaml was changed: its digest is " in verified(copied.runs, code=1)


@pytest.mark.parametrize("place", ["", "x.csv", "mine.npz"])
def test_images_elsewhere_are_read_there(
    place: str, finished: Path, images: Path, kinds: Kinds, tmp_path: Path
) -> None:
    """A folder; an index file, whose images lie beside it; a file of embeddings; and each of them with other content."""
    kind = {"": None, "x.csv": "groups, queries and a gallery", "mine.npz": "features"}[place]
    runs, name = (kinds(kind).runs, kinds(kind).name) if kind else (finished, "small")
    data = runs.parent / "data" if kind else images
    before, here = contents(runs), tmp_path / "elsewhere"
    with moved(data, here):
        assert "Verified, but for what needs more" in verified(runs, name=name)
        assert VERIFIED in verified(runs, "--images", str(here), name=name)
        retrained = "--retrain", f"{'contrastive' if place == 'mine.npz' else 'pnp'}@final:0"
        assert "retrained, bit for bit the same" in verified(runs, "--images", str(here), *retrained, name=name)
        shutil.copytree(here, other := tmp_path / "other")
        if place == "mine.npz":
            with np.load(other / place) as arrays:
                changed = {**arrays, "embeddings": arrays["embeddings"] * 1.01}
            np.savez(other / place, **changed)
        else:
            _blank(sorted(other.rglob("*/03.png"))[0].parent)
        assert "split.json" in verified(runs, "--images", str(other), code=1, name=name).splitlines()[-1]
    assert contents(runs) == before
