"""``holdout verify``: an untouched search passes, and every single change in its records is found."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from PIL import Image
from support.commands import command, holdout_here, plain, stored
from support.finished_search import finish, run_here
from support.journals import CREATE_TRIAL, SET_STATE, SET_VALUE, Operation, of_trial, rewrite
from support.small_search import draw_glyphs, small_search
from support.tampered import Copied

from search.driver.stages import selection_of
from search.plan.make_plan import reopened
from search.plan.runs import RunFolder
from search.plan.search import open_search
from search.selection.ledger import NAME
from search.selection.ledger_file import LedgerFile
from search.selection.selection import Selection

Change = Callable[[Copied], object]
TRAINING = {"epochs": 4, "batch_size": 20, "images_per_class": 5, "image_size": 16}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_glyphs(tmp_path_factory.mktemp("glyphs") / "images")


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs folder of a finished search; tests must not change it."""
    runs = tmp_path_factory.mktemp("finished") / "runs"
    content = small_search(
        images,
        training=TRAINING,
        search={"trials": 6},
        selection={"finalists": 2, "seeds": 2},
    )
    return finish(runs, content)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Copied:
    return Copied(finished, tmp_path / "runs")


def verified(runs: Path, *more: str, code: int = 0, name: str = "small") -> str:
    """Run the command and return its output on both streams."""
    done = holdout_here("verify", name, "--runs", runs, *more, code=code)
    return done.stdout + plain(done.stderr)


def files(folder: Path) -> dict[str, str]:
    """Return the digest of every file except lock files."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }


def test_an_untouched_search_passes_and_nothing_is_written(finished: Path) -> None:
    before = files(finished)
    lines = holdout_here("verify", "small", "--runs", finished).stdout.splitlines()
    assert files(finished) == before
    assert len(lines) > 20
    assert all(line.startswith("ok  ") for line in lines), lines
    for word in (
        "split.json",
        "pnp: 6 trials",
        "prunings",
        "@confirm",
        "selection.json",
        "ledger",
        "models",
        "summary",
    ):
        assert any(word in line for line in lines), word


def _epochs_and_all(copied: Copied) -> None:
    """Change a value and all records that it follows from consistently; only the frozen digest differs."""
    for epoch in range(1, 5):
        kept = {} if epoch == 1 else {"checkpoint": None, "classes": None}
        measured = {"metrics": {"recall_at_1": 0.9, "map_at_r": 0.875}}
        copied.epoch("pnp@confirm", 0, epoch, **measured, **kept)
    copied.attribute(
        "pnp@confirm", 0, "epoch:000001", lambda record: {**record, "classes": dict.fromkeys(record["classes"], 0.875)}
    )
    rewrite(copied.journal, _follow)


def _follow(found: list[Operation]) -> None:
    for entry in of_trial(found, "small/pnp@confirm", 0):
        if "intermediate_value" in entry:
            entry["intermediate_value"] = 0.875
        if entry.get("values"):
            entry["values"] = [0.875]


def _classes(change: Callable[[list[float]], list[float]]) -> Change:
    """Change the values by class of the first epoch, the best one so far."""

    def changed(copied: Copied) -> None:
        def of_record(record: Any) -> Any:
            values = change(list(record["classes"].values()))
            return {**record, "classes": dict(zip(record["classes"], values, strict=False))}

        copied.attribute("pnp@confirm", 0, "epoch:000001", of_record)

    return changed


def _class_and_choice(copied: Copied) -> None:
    """Change a value by class, and freeze again the choice that follows, with its digests."""
    _classes(lambda values: [values[0] + 0.2, *values[1:]])(copied)
    path = copied.path / "selection.json"
    frozen = Selection.load(path)
    with closing(open_search(reopened(copied.runs, "small"))) as search:
        replace(selection_of(search, frozen.family), id=frozen.id).save(path)
    assert Selection.load(path).studies != frozen.studies


def _finalist(copied: Copied) -> int:
    """Return the number of the trial that is confirmed first."""
    number: int = copied.trials("pnp@confirm")[0].user_attrs["source_trial"]
    return number


def _swap_seeds(study: str) -> Change:
    def change(copied: Copied) -> None:
        first, *_, last = copied.trials(study)
        copied.attribute(study, first.number, "seed", lambda _: last.user_attrs["seed"])
        copied.attribute(study, last.number, "seed", lambda _: first.user_attrs["seed"])

    return change


def _of_trial(study: str, number: int | str, code: int, **changes: Any) -> Change:
    """Change the last operation with this code of a trial, given by its number or its state."""
    return lambda copied: copied.trial(
        study,
        number if isinstance(number, int) else copied.state(study, number),
        code,
        lambda entry: entry.update(changes),
    )


def _without_epoch(found: list[Operation]) -> None:
    (epoch,) = [entry for entry in of_trial(found, "small/pnp", 0) if "epoch:000003" in entry.get("user_attr", {})]
    found.remove(epoch)


def _a_replicate(found: list[Operation]) -> None:
    seed = next(entry for entry in of_trial(found, "small/pnp", 1) if "seed" in entry.get("user_attr", {}))
    found.insert(found.index(seed), {**seed, "user_attr": {"replicate_of": 0}})


def _ledger(change: Callable[[list[str]], list[str]]) -> Change:
    def changed(copied: Copied) -> None:
        path = copied.runs / "test_openings.jsonl"
        path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))

    return changed


def _chained_again(copied: Copied) -> None:
    """Change the reason of the opening, and all digests of the chain."""
    ledger = LedgerFile(copied.runs / NAME)
    opening, *later = ledger.entries().values()
    ledger.path.unlink()
    ledger.append([{**opening, "reason": "another"}, *later], lambda name: None)


def _chosen_again(copied: Copied) -> None:
    """Freeze another choice with a digest that matches."""
    path = copied.path / "selection.json"
    selection = Selection.load(path)
    object.__setattr__(selection, "chosen", {**selection.chosen, "pnp": selection.chosen["proxy_anchor"]})
    selection.save(path)


STUDIES: dict[str, tuple[Change, str]] = {
    "a value, a little": (
        lambda c: c.trial("pnp", 0, SET_STATE, lambda entry: entry.update(values=[entry["values"][0] + 1e-12])),
        "pnp trial 0: value",
    ),
    "a value after an epoch": (
        _of_trial("pnp", 0, SET_VALUE, intermediate_value=0.01),
        "pnp trial 0: values.4",
    ),
    "an epoch's objective": (lambda c: c.metric("pnp", 1, 1, "map_at_r", 0.999), "pnp trial 1"),
    "an epoch's other metric": (lambda c: c.metric("pnp", 1, 1, "recall_at_1", 0.5), "selection.json studies"),
    "an epoch's number": (
        lambda c: c.attribute("pnp", 0, "epoch:000002", lambda record: {**record, "epoch": 3}),
        "pnp trial 0: epochs.1.1: 3 is stored, 2 recomputed",
    ),
    "an epoch's model": (
        lambda c: c.epoch("pnp", 0, 1, checkpoint=None),
        "epoch 1: metrics, checkpoint, classes.1: false",
    ),
    "a missing epoch": (lambda c: rewrite(c.journal, _without_epoch), "pnp trial 0: epochs"),
    "swapped seeds": (_swap_seeds("pnp"), "pnp trial 0: seed"),
    "a parameter": (
        lambda c: c.param("pnp", _finalist(c), "temperature", lambda entry: entry.update(param_value_internal=0.0123)),
        "pnp@confirm trial 0: params.temperature",
    ),
    "a range": (
        lambda c: c.param(
            "pnp",
            2,
            "temperature",
            lambda entry: entry.update(distribution=entry["distribution"].replace('"high": ', '"high": 1')),
        ),
        "the range of temperature",
    ),
    "a dropped trial, the last": (lambda c: c.drop("pnp", 5), "5 trials are stored and 6 were planned"),
    "a pruned trial that is complete": (
        _of_trial("pnp", "PRUNED", SET_STATE, state=TrialState.COMPLETE),
        "epochs",
    ),
    "why a trial was pruned": (
        lambda c: c.attribute("pnp", c.state("pnp", "PRUNED"), "outcome", lambda text: text.replace("half", "third")),
        "outcome",
    ),
    "a replicate": (
        lambda c: rewrite(c.journal, _a_replicate),
        "pnp trial 1: replicate_of",
    ),
    "the split of the study": (lambda c: c.study_attribute("pnp", "split_digest", "0" * 64), "pnp.split_digest"),
    "the sessions": (lambda c: c.study_attribute("proxy_anchor", "sessions", [0.0]), "summary.json time"),
    "a confirmation's configuration": (
        lambda c: c.attribute("pnp@confirm", 0, "source_trial", lambda number: number + 1),
        "pnp@confirm",
    ),
    "a dropped confirmation, the last": (
        lambda c: c.drop("pnp@confirm", len(c.trials("pnp@confirm")) - 1),
        "pnp@confirm trials with",
    ),
    "a value by class": (
        _classes(lambda values: [values[0] + 1e-6, *values[1:]]),
        "epoch 1: mean of the classes by query",
    ),
    "two values by class": (_classes(lambda values: [values[1], values[0], *values[2:]]), "selection.json"),
    "a missing class": (_classes(lambda values: values[:-1]), "epoch 1: classes"),
    "a value by class, with the choice": (_class_and_choice, "epoch 1: mean of the classes by query"),
    "no values by class": (
        lambda c: c.epoch("pnp@confirm", 0, 1, classes=None),
        "epoch 1: metrics, checkpoint, classes.2",
    ),
    "a half": (lambda c: c.attribute("pnp@confirm", 0, "half", lambda half: 3 - half), "pnp@confirm"),
    "a confirmation, from its epochs on": (_epochs_and_all, "selection.json"),
    "the enqueued parameters": (
        lambda c: c.trial("pnp@confirm", 1, CREATE_TRIAL, lambda entry: entry["system_attrs"].update(fixed_params={})),
        "selection.json studies",
    ),
    "swapped seeds of final trainings": (_swap_seeds("pnp@final"), "stored"),
    "a dropped final training": (lambda c: c.drop("pnp@final", 3), "pnp@final trials with"),
    "a final training's loss": (
        lambda c: c.epoch("pnp@final", 0, 2, loss=0.5),
        "small/pnp@final was changed",
    ),
}

FILES: dict[str, tuple[Change, str]] = {
    "the split's seed": (lambda c: c.search_file(lambda file: file["split"].update(seed=1)), "split.json"),
    "how many trials": (lambda c: c.text("search.yaml", "trials: 6", "trials: 7"), "6 trials are stored and 7"),
    "the learning rate": (lambda c: c.text("search.yaml", "  lr: 0.001", "  lr: 0.002"), "settled_digest"),
    "a validation class": (
        lambda c: c.json("split.json", lambda split: split["validation"].append(split["train"].pop())),
        "split.json",
    ),
    "the choice": (
        lambda c: c.json("selection.json", lambda content: content["chosen"]["pnp"].update(number=4)),
        "selection.json",
    ),
    "the choice, frozen again": (_chosen_again, "selection.json"),
    "the exported model": (
        lambda c: (c.path / "models/pnp/model.safetensors").write_bytes(
            (c.path / "models/proxy_anchor/model.safetensors").read_bytes()
        ),
        "models/pnp/ model.safetensors",
    ),
    "an unexpected file of a model": (
        lambda c: (c.path / "models/pnp/more.bin").write_bytes(b"x"),
        "models/pnp/ more.bin:",
    ),
    "the best model of another trial": (
        lambda c: c.write(
            next(c.path.glob("trials/pnp/0000/**/best.safetensors")),
            next(c.path.glob("trials/pnp/0001/**/best.safetensors")).read_bytes(),
        ),
        "best.safetensors: origin.trial: 1 is stored, 0 recomputed",
    ),
    "the description of the exported model": (
        lambda c: c.json("models/pnp/model.json", lambda content: content["origin"].update(trial=1)),
        "models/pnp/model.json origin.trial",
    ),
    "a study's digest": (
        lambda c: c.json("selection.json", lambda content: content["studies"].update({"small/pnp": "0" * 64})),
        "selection.json",
    ),
    "a removed line of the ledger": (_ledger(lambda lines: lines[1:]), "Line 1 of the ledger"),
    "a line that is chained again": (_chained_again, "reason"),
    "a test metric": (
        lambda c: c.json("test.json", lambda t: t["openings"][0]["scores"][0]["metrics"].update(recall_at_1=0.99)),
        "recall_at_1",
    ),
    "a test metric without per-image results": (
        lambda c: c.json("test.json", lambda t: t["openings"][0]["scores"][0]["metrics"].update(nmi=0.99)),
        "nmi",
    ),
    "a scored seed": (
        lambda c: c.json("test.json", lambda t: t["openings"][0]["scores"][0].update(seed=1)),
        "scores.0.seed",
    ),
    "a dropped score": (lambda c: c.json("test.json", lambda t: t["openings"][0]["scores"].pop()), "scores"),
    "the time of the scoring": (
        lambda c: c.json("test.json", lambda t: t["openings"][0].update(finished=0.0)),
        "digest",
    ),
    "the number of test images that trained": (
        lambda c: c.json("test.json", lambda t: t["openings"][0].update(overlap=3)),
        "overlap with the training images: 3 is stored, 0 recomputed",
    ),
    "no images that were opened": (_ledger(lambda lines: lines[:1]), "test.json openings"),
    "the images of the ledger": (lambda c: c.write(c.opened_images, b"0" * 160), "images of an opened test set"),
    "the training images": (lambda c: c.json("split.json", lambda split: split.update(images="0" * 64)), "split.json"),
    "a dropped opening": (lambda c: c.json("test.json", lambda t: t["openings"].clear()), "test.json openings"),
    "a per-image result": (
        lambda c: c.arrays(lambda arrays: arrays["recall_at_1"].__setitem__(3, 1 - arrays["recall_at_1"][3])),
        "recall_at_1",
    ),
    "an image's name": (lambda c: c.arrays(lambda arrays: arrays["keys"].__setitem__(3, "another")), "keys"),
    "an image's class": (lambda c: c.arrays(lambda arrays: arrays["labels"].__setitem__(3, 5)), "labels"),
    "swapped results": (lambda c: c.swap(*c.results[:2]), "npz"),
    "a neighbour": (
        lambda c: c.arrays(lambda a: a["neighbours_QK"].__setitem__((3, 0), 3), c.rankings[0]),
        "@final-0.npz was changed",
    ),
    "a thumbnail": (
        lambda c: c.arrays(lambda a: a["pictures"].__setitem__(40, a["pictures"][40] ^ 1), c.thumbnails),
        "thumbnails.npz was changed",
    ),
    "a model": (lambda c: c.write(c.models[0], c.models[0].read_bytes()[:-1] + b"!"), "The scored model"),
    "a mean": (
        lambda c: c.json("summary.json", lambda s: s["losses"]["pnp"]["confirmed"].update(mean=0.99)),
        "summary.json losses.pnp.confirmed.mean: 0.99 is stored",
    ),
    "a count": (
        lambda c: c.json("summary.json", lambda s: s["losses"]["pnp"]["trials"].update(failed=0, pruned=0)),
        "summary.json losses.pnp.trials",
    ),
    "the number of openings": (lambda c: c.json("summary.json", lambda s: s.update(test_opened=0)), "test_opened"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "says"), (STUDIES | FILES).values(), ids=[*STUDIES, *FILES])
def test_one_change_is_found(copied: Copied, change: Change, says: str) -> None:
    change(copied)
    said = verified(copied.runs, code=1)
    assert says in said.splitlines()[-1], said


@pytest.mark.parametrize("of_user", [False, True])
def test_the_ledger_that_lacks_a_line_is_named(copied: Copied, state: Path, of_user: bool) -> None:
    own, users = copied.runs / NAME, state / "holdout" / NAME
    users.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(own, users)
    shorter = users if of_user else own
    shorter.write_text("".join(shorter.read_text().splitlines(keepends=True)[:-1]))
    said = verified(copied.runs, code=0 if of_user else 1)  # the user may have used another machine meanwhile
    assert f"{shorter}:1linethattheotherledgerhas" in "".join(said.split())


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


def test_a_read_only_folder_is_read(copied: Copied) -> None:
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    (copied.path / ".driver.lock").unlink(missing_ok=True)
    for words in (("verify", "small"), ("status",), ("trials", "small")):
        call = command(*words, "--runs", copied.runs)
        mounted = [*unshare, "bash", "-c", READ_ONLY, str(copied.runs), *call]
        done = subprocess.run(mounted, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert not (copied.path / ".driver.lock").exists()


def _blank(images: Path, name: str) -> None:
    Image.new("RGB", (20, 20)).save(images / name / "03.png")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda images, classes: _blank(images, classes[0]), "split.json"),
        (lambda images, classes: _blank(images, classes[-1]), "images"),
        (lambda images, classes: (images / classes[0] / "03.png").unlink(), "split.json"),
        (lambda images, classes: (images / classes[0]).rename(images / "another"), "split.json"),
        (
            lambda images, classes: shutil.copy(images / classes[0] / "03.png", images / classes[1] / "03.png"),
            "split.json",
        ),
        (lambda images, classes: shutil.rmtree(images), "dataset.root"),
    ],
    ids=["another training image", "another test image", "one image less", "another name", "a moved image", "none"],
)
def test_other_images_are_found(
    finished: Path, images: Path, tmp_path: Path, change: Callable[[Path, list[str]], object], says: str
) -> None:
    shutil.copytree(images, tmp_path / "kept")
    try:
        change(images, sorted(path.name for path in images.iterdir()))
        assert says in verified(finished, code=1).splitlines()[-1]
    finally:
        shutil.rmtree(images, ignore_errors=True)
        shutil.copytree(tmp_path / "kept", images)


def test_a_replaced_image_of_the_same_size_and_time_is_found(finished: Path, images: Path, tmp_path: Path) -> None:
    """The cache of decoded images compares file sizes and times; verify decodes the images again."""
    image = sorted(images.iterdir())[0] / "03.png"
    kept, times = image.read_bytes(), image.stat()
    other = (sorted(images.iterdir())[1] / "03.png").read_bytes()
    try:
        image.write_bytes(other)
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert "split.json" in verified(finished, code=1)
    finally:
        image.write_bytes(kept)
        os.utime(image, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_retrained_trial_is_the_same_bit_for_bit(finished: Path) -> None:
    (pruned, *_) = [trial.number for trial in stored(finished, "small", "pnp") if trial.state == TrialState.PRUNED]
    before = files(finished)
    for number, epochs in ((f"pnp:{pruned}", 2), ("pnp@final:0", 4)):
        study, _, trial = number.partition(":")
        said = verified(finished, "--retrain", number)
        assert f"small/{study} trial {trial}: {epochs} epochs retrained, bit for bit the same" in said
    assert files(finished) == before


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
        (("--retrain", "pnp"), "--retrain is 'pnp'; give a loss and a trial's number, as in proxy_anchor:0."),
        (("--retrain", "pnq:0"), "small has no loss 'pnq'"),
        (("--retrain", "pnp:99"), "small/pnp has no trial 99; it has trials 0 to 5."),
    ],
)
def test_an_invalid_retraining_is_refused_before_the_checks(finished: Path, asked: tuple[str, ...], says: str) -> None:
    said = verified(finished, *asked, code=2)
    assert says in said
    assert "ok" not in said


def test_an_unknown_name_is_refused(finished: Path) -> None:
    assert "There is no search 'smal' in" in verified(finished, name="smal", code=2)


def test_a_running_search_is_refused(finished: Path, copied: Copied) -> None:
    with RunFolder(copied.runs, "small").only_driver():
        assert "small is being run by process" in verified(copied.runs, code=2)


def test_the_result_as_json(finished: Path, copied: Copied) -> None:
    whole = json.loads(verified(finished, "--json"))
    assert whole["ok"]
    assert {check["problem"] for check in whole["checks"]} == {None}
    copied.metric("pnp", 0, 1, "map_at_r", 0.99)
    out, _ = json.JSONDecoder().raw_decode(verified(copied.runs, "--json", code=1))
    assert not out["ok"]
    assert [check["problem"] is None for check in out["checks"]] == [True] * (len(out["checks"]) - 1) + [False]


@pytest.mark.parametrize("epochs", [0, 5, 20, 30])
def test_an_unfinished_search_passes_as_far_as_it_is(images: Path, tmp_path: Path, epochs: int) -> None:
    """Existing records are checked and missing ones are listed, before the first trial and within each stage."""
    content = small_search(images, training=TRAINING, losses=["pnp"], search={"trials": 4, "pruner": "median"})
    (search,) = run_here(tmp_path / "runs", [content], epochs=epochs)
    search.close()
    said = verified(tmp_path / "runs")
    missing = [line for line in said.splitlines() if line.startswith("--  ")]
    assert missing
    assert all(line.endswith(": not there yet") for line in missing)
    if epochs:
        copied = Copied(tmp_path / "runs", tmp_path / "copied")
        copied.metric("pnp", 0, 1, "map_at_r", 0.001234)
        assert "pnp trial 0" in verified(copied.runs, code=1)
