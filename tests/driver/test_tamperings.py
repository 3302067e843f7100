"""One table of tamperings: what `holdout verify` finds, with its words, and what docs/verify.md says that it does not."""
# ruff: noqa: E501

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.trial import TrialState
from support.journals import (
    CREATE_STUDY,
    SET_STATE,
    SET_VALUE,
    Operation,
    of_trial,
    rewrite,
    rewritten,
    trials_in,
    without_openings,
)
from support.tampered import Change, Copied, array, attribute, entry, epoch, ledger, trial, verified

from search.config.search_config import settled_digest
from search.config.yaml_file import read_yaml
from search.driver.finish import write_summary
from search.driver.make_plan import plan_from_rules
from search.driver.verify import check_retrained, trial_to_retrain
from search.records import study_digest
from search.records.ledger import NAME
from search.records.ledger_file import LedgerFile
from search.records.records import Records
from search.records.runs import RunFolder
from search.records.selection import Selection
from search.show.model_cards import write_model_folders
from search.stages import BASELINES
from trainables.common.files import file_digest, json_digest
from trainables.inference.model_files import parsed_tensors, tensors_bytes

ROOT = Path(__file__).parents[2]


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


def _swapped_seeds(copied: Copied) -> None:
    first, *_, last = copied.trials("pnp")
    copied.attribute("pnp", first.number, "seed", lambda _: last.user_attrs["seed"])
    copied.attribute("pnp", last.number, "seed", lambda _: first.user_attrs["seed"])


def _finalist(copied: Copied) -> int:
    number: int = copied.trials("pnp@confirm")[0].user_attrs["source_trial"]
    return number


def seal_again(copied: Copied) -> None:
    """Make all digests of the records and the chain of the ledger anew, and write what is derived from the records."""
    folder = RunFolder(copied.runs, copied.name)
    search = Records(folder, replace(plan_from_rules(folder), split=Records(folder).split))

    def of_studies(names: Iterable[str]) -> dict[str, str]:
        return {name: study_digest(trials_in(copied.journal, name)) for name in names}

    choice, test = json.loads(folder.selection.read_text()), json.loads(folder.test.read_text())
    del choice["digest"]
    choice["studies"] = of_studies(choice["studies"])
    folder.selection.write_text(json.dumps({**choice, "digest": json_digest(choice)}))
    (opening,), place = test["openings"], copied.results[0].parent
    del opening["digest"]
    opening |= {"selections": {copied.name: json_digest(choice)}, "studies": of_studies(opening["studies"])}
    opening["files"] = {name: file_digest(place / name) for name in opening["files"]}
    for score in opening["scores"]:
        (model,) = copied.path.glob(f"trials/{score['per_image'].removesuffix('-0.npz')}/0000/**/best.safetensors")
        score["model_sha256"] = file_digest(model)
    folder.test.write_text(json.dumps({"openings": [{**opening, "digest": json_digest(opening)}]}))
    scored = {"selection": json_digest(choice), "scores": json_digest(opening)}
    chained(
        lambda line: {**line, **(scored if "scored" in line else {key: opening[key] for key in line if "id" in line})}
    )(copied)
    folder.summary.unlink()
    write_summary(search)
    shutil.rmtree(folder.path / "models")
    write_model_folders(search)


def chained(change: Callable[[Any], Any]) -> Change:
    """Change the lines of the ledger or, by None, remove one, and make all digests of its chain anew."""

    def changed(copied: Copied) -> None:
        found = LedgerFile(copied.runs / NAME)
        lines = [line for line in map(change, found.entries().values()) if line]
        found.path.unlink()
        found.append(lines, lambda name: None)

    return changed


def sealed(change: Change) -> Change:
    """Make a change of the records, and all digests above it anew."""
    return lambda copied: [change(copied), seal_again(copied)]


def removed(pattern: str) -> Change:
    """Remove the files and folders of the search that match."""

    def change(copied: Copied) -> None:
        for path in [*copied.path.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def added(name: str, content: str = "{}") -> Change:
    def change(copied: Copied) -> None:
        (path := copied.path / name).parent.mkdir(exist_ok=True)
        assert not path.exists()
        path.write_text(content)

    return change


def half(pattern: str) -> Change:
    def change(copied: Copied) -> None:
        path = next(copied.path.glob(pattern))
        copied.write(path, path.read_bytes()[: path.stat().st_size // 2])

    return change


def swapped(first: str, second: str) -> Change:
    def change(copied: Copied) -> None:
        paths = next(copied.path.glob(first)), next(copied.path.glob(second))
        contents = [path.read_bytes() for path in paths]
        for path, content in zip(paths, reversed(contents), strict=True):
            copied.write(path, content)

    return change


def weights(pattern: str) -> Change:
    """Change the weights of a model, with the digest in its header."""

    def change(copied: Copied) -> None:
        path = next(copied.path.glob(pattern))
        tensors, description = parsed_tensors(path.read_bytes(), path)
        changed = {name: tensor * 1.5 if tensor.ndim > 1 else tensor for name, tensor in tensors.items()}
        copied.write(path, tensors_bytes(changed, description))

    return change


def _another_rate(copied: Copied) -> None:
    entry("search.yaml", "training/lr", 0.002)(copied)
    content = read_yaml(copied.path / "search.yaml")
    changing = ("losses", "space", "training_by_loss", "dataset", "checkpoints")
    digests = {"settled_digest": settled_digest(content), "settings_digest": settled_digest(content, changing)}
    with rewritten(copied.journal) as found:
        for line in (line for line in found if "study_id" in line):
            line.get("user_attr", {}).update({key: digests[key] for key in line.get("user_attr", {}) if key in digests})


def _raised(copied: Copied) -> None:
    """Raise the values of a row, per image and their mean."""
    name, values = copied.results[0].name, []

    def raised(arrays: dict[str, Any]) -> None:
        arrays["map_at_r"] = np.minimum(1, arrays["map_at_r"] + 0.25)
        values.append(float(arrays["map_at_r"].mean()))

    def changed(test: Any) -> None:
        (row,) = [row for row in test["openings"][0]["scores"] if row["per_image"] == name]
        row["metrics"]["map_at_r"] = values[0]

    copied.arrays(raised)
    copied.json("test.json", changed)


def _failed(copied: Copied) -> None:
    """Let a whole training of the search have failed."""
    number = copied.state("pnp", "COMPLETE")
    with rewritten(copied.journal) as found:
        lines = of_trial(found, "small/pnp", number)
        [line for line in lines if line["op_code"] == SET_STATE][-1].update(state=TrialState.FAIL, values=None)
        outcome = next(line for line in lines if "outcome" in line.get("user_attr", {}))
        outcome["user_attr"] = {"outcome": "training: a reason"}
        failure = {"cause": "training", "reason": "a reason"}
        found.insert(found.index(outcome), {**outcome, "user_attr": {"failure": failure}})


def _another_study(copied: Copied) -> None:
    """Add a study with the attributes of the first one, as if the best of several had been kept."""
    with rewritten(copied.journal) as found:
        studies = [line for line in found if line["op_code"] == CREATE_STUDY]
        of_first = [line for line in found if line.get("study_id") == 0 and "user_attr" in line]
        found.append({**studies[0], "study_name": "small/other", "left": 0})
        found.extend({**line, "study_id": len(studies), "left": 0} for line in of_first)


def _failed_score(copied: Copied) -> None:
    """Let a model have failed to be scored, and remove its results."""

    def changed(test: Any) -> None:
        (opening,) = test["openings"]
        row = opening["scores"].pop()
        opening["failed"] = [{key: row[key] for key in ("loss", "seed", "per_image")} | {"reason": "a reason"}]
        for name in [name for name in opening["files"] if name.endswith(row["per_image"])]:
            del opening["files"][name]
            (copied.results[0].parent / name).unlink()

    copied.json("test.json", changed)


def _never_opened(copied: Copied) -> None:
    for pattern in ("test.json", "test", "summary.json", f"../{NAME}"):
        removed(pattern)(copied)
    rewrite(copied.journal, without_openings)


def _earlier(found: list[Operation]) -> None:
    for line in found:
        if line.get("datetime_start"):
            line["datetime_start"] = "2020-01-01T00:00:00.000000+00:00"


OPENING, SCORE = "openings/0", "openings/0/scores/0"
MEAN = "epoch 1: mean of the classes by query"
# fmt: off
FOUND: dict[str, tuple[Change, str]] = {
    # Studies.
    "a value, a little": (lambda c: c.trial("pnp", 0, SET_STATE, lambda line: line.update(values=[line["values"][0] + 1e-12])), "pnp trial 0: value"),
    "a value after an epoch": (trial("pnp", 0, SET_VALUE, intermediate_value=0.01), "pnp trial 0: values.4"),
    "an epoch's other metric": (lambda c: c.metric("pnp", 1, 1, "recall_at_1", 0.123), "selection.json studies"),
    "an epoch's number": (attribute("pnp", 0, "epoch:000002", lambda record: {**record, "epoch": 3}), "pnp trial 0: epochs.1.1: 3 is stored, 2 recomputed"),
    "an epoch's model": (epoch("pnp", 0, 1, checkpoint=None), "epoch 1: metrics, checkpoint, classes.1: false"),
    "swapped seeds": (_swapped_seeds, "pnp trial 0: seed"),
    "a parameter": (lambda c: c.param("pnp", _finalist(c), "temperature", lambda line: line.update(param_value_internal=0.0123)), "pnp@confirm trial 0: params.temperature"),
    "a study more": (_another_study, "study.journal: small/other is not of this search"),
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
    "the learning rate": (entry("search.yaml", "training/lr", 0.002), "search.yaml was changed: its digest is "),
    "a validation class": (lambda c: c.json("split.json", lambda split: split["validation"].append(split["train"].pop())), "split.json"),
    "the choice": (entry("selection.json", "chosen/pnp/number", 4), "selection.json"),
    "the choice, frozen again": (_chosen_again, "selection.json"),
    "the exported model": (lambda c: shutil.copy(c.path / "models/proxy_anchor/model.safetensors", c.path / "models/pnp/"), "models/pnp/ model.safetensors"),
    "an unexpected file of a model": (lambda c: (c.path / "models/pnp/more.bin").touch(), "models/pnp/ more.bin:"),
    "the description of the exported model": (entry("models/pnp/model.json", "origin/trial", 1), "models/pnp/model.json origin.trial"),
    "the best model of another trial": (swapped("trials/pnp/0000/*/best.safetensors", "trials/pnp/0001/*/best.safetensors"), "best.safetensors: origin.trial: 1 is stored, 0 recomputed"),
    "a removed line of the ledger": (ledger(lambda lines: lines[1:]), "Line 1 of the ledger"),
    "no images that were opened": (ledger(lambda lines: lines[:1]), "test.json openings"),
    "a line that is chained again": (chained(lambda line: {**line, "reason": "another"} if "id" in line else line), "reason"),
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
    "no ledger": (lambda c: (c.runs / NAME).unlink(), f"{NAME} is missing; it lies beside"),
    "no scores and no ledger": (lambda c: [path.unlink() for path in (c.path / "test.json", c.path / "summary.json", c.runs / NAME)], "test.json openings lack"),
    "a neighbour": (array("neighbours_QK", (3, 0), 3, lambda c: c.rankings[0]), "@final-0.npz was changed"),
    "a thumbnail": (array("pictures", 20, lambda pixels: pixels ^ 1, lambda c: c.thumbnails), "thumbnails.npz was changed"),
    "a model": (lambda c: c.write(c.models[0], c.models[0].read_bytes()[:-1] + b"!"), "The scored model"),
    "a mean": (entry("summary.json", "losses/pnp/tuned/confirmed/mean", 0.99), "summary.json losses.pnp.tuned.confirmed.mean: 0.99 is stored"),
    "the journal, half a line": (lambda c: c.write(c.journal, c.journal.read_bytes()[:-40]), "study.journal does not note the opening"),
    "the note of the opening": (lambda c: rewrite(c.journal, without_openings), "study.journal does not note the opening"),
    "the journal, three lines": (lambda c: rewrite(c.journal, lambda found: found.__delitem__(slice(len(found) - 3, None))), "study.journal does not note the opening"),
    "no file of a trial": (removed("trials/pnp/0000/trial.json"), "trial.json: nothing is stored"),
    "a file of a trial": (entry("trials/pnp/0000/trial.json", "seed", 1), "trial.json seed: 1 is stored"),
    "no model of a trial": (removed("trials/pnp/0001/*/best.safetensors"), "the model is missing"),
    "a model of a trial, half": (half("trials/pnp/0001/*/best.safetensors"), "the model is damaged"),
    "the exported model, half": (half("models/pnp/model.safetensors"), "models/pnp/ model.safetensors"),
    "a model of no loss": (added("models/best/model.json"), "models/best is of no loss"),
    "a folder of another opening": (lambda c: shutil.copytree(c.results[0].parent, c.path / "test" / ("0" * 32)), "test.json openings lack 000000000000"),
    "no results": (removed("test/*/pnp@*.npz"), "pnp@final-0.npz"),
    "no neighbours": (removed("test/*/retrieval"), "is missing"),
    "no thumbnails": (removed("test/*/thumbnails.npz"), "thumbnails.npz is missing"),
    "another's results": (swapped("test/*/pnp@*.npz", "test/*/proxy*.npz"), "recall_at_1: "),
    "no images in the ledger": (lambda c: c.opened_images.unlink(), "are missing or damaged"),
    "moved lines of the ledger": (ledger(lambda lines: lines[::-1]), "was not written after the line before"),
    **{f"no {file}": (removed(file), says) for file, says in {
        "selection.json": "selection.json: nothing is stored", "split.json": "split.json: nothing is stored", "test.json": "test.json openings lack",
        "study.journal": "The studies are missing", "summary.json": "summary.json: nothing is stored", "trained_on_opened.json": "trained_on_opened.json"}.items()},
    **{f"{file}, half": (half(file), f"{file} ") for file in ("search.yaml", "selection.json", "split.json", "test.json", "summary.json", "trained_on_opened.json")},
    "networks without training": (added("baselines.json", json.dumps({"network": "x", "loaded": None, "dimensions": 8, "whitening_sha256": "0"} | {part: {name: {} for name in BASELINES} for part in ("validation", "classes")})), "selection.json family.rows"),
    "more trials": (entry("search.yaml", "search/trials", 12), "6 trials are stored and 12 were planned"),
    "the summary, with its digest": (lambda c: c.json("summary.json", lambda found: (found["losses"]["pnp"]["tuned"]["confirmed"].update(mean=0.99), found.update(digest=json_digest({key: found[key] for key in found if key != "digest"})))), "confirmed.mean: 0.99 is stored"),
    # With all digests above it made anew.
    **{f"{name}, sealed again": (sealed(change), says) for name, (change, says) in {
        "raised values of a row": (_raised, "pnp@final-0.npz scored again, map_at_r: "),
        "a model that failed": (_failed_score, "its model has scores, and the record says"),
        "another's results": (swapped("test/*/pnp@*.npz", "test/*/proxy*.npz"), "recall_at_1: "),
        "another's model": (swapped("trials/pnp@final/0000/*/best.safetensors", "trials/proxy_anchor@final/0000/*/best.safetensors"), "scored again, "),
        "the weights of a row": (weights("trials/pnp@final/0000/*/best.safetensors"), "scored again, "),
        "a metric without per-image results": (entry("test.json", f"{SCORE}/metrics/nmi", 0.99), "nmi: 0.99 is stored"),
        "a metric that is left out": (entry("test.json", f"{SCORE}/metrics", lambda found: {"nmi": found["nmi"]}), 'metrics: ["nmi"] is stored'),
        "a scored seed": (entry("test.json", f"{SCORE}/seed", 1), "scores.0.seed: 1 is stored"),
        "a row's trial": (entry("test.json", f"{SCORE}/source_trial", 3), "scores.0.source_trial: 3 is stored"),
        "a row's loss": (entry("test.json", f"{SCORE}/loss", "pnp"), "scores.0.loss: "),
        "a row twice": (entry("test.json", f"{OPENING}/scores", lambda rows: [*rows, rows[0]]), "scores: "),
        "the overlap": (entry("test.json", f"{OPENING}/overlap", 3), "overlap with the training images: 3"),
        "the copies": (entry("test.json", f"{OPENING}/copies", 3), "copies within the test set: 3"),
        "the number of configurations": (entry("test.json", f"{OPENING}/configurations", {"small": 1}), "configurations: 1 is stored, 2 recomputed"),
        "the test classes": (entry("test.json", f"{OPENING}/test_digest", "0" * 64), "test_digest"),
        "a final training that is left out": (lambda c: c.drop("pnp@final", 0), "pnp@final trials with"),
        "a value of the search": (lambda c: c.metric("pnp", 0, 1, "map_at_r", 0.999), "pnp trial 0: "),
        "the recommended model": (entry("selection.json", "recommended/loss", "pnp"), "recommended.loss"),
        "a reason of the choice": (entry("selection.json", "reasons/pnp", "better"), 'reasons.pnp: "better" is stored'),
        "the margin": (entry("selection.json", "family/within", 1.0), "family.within: 1.0 is stored"),
        "the rule": (entry("selection.json", "rule", "mine"), 'rule: "mine" is stored'),
        "the metrics of the test": (entry("selection.json", "test_metrics", ["map_at_r"]), "test_metrics"),
        "the learning rate": (_another_rate, "trial.json training.lr: 0.001 is stored"),
    }.items()},
}
NOT_FOUND: dict[str, tuple[Change, str]] = {
    "the report": (added("report.html", "99 %"), "numbers in `report.html` and the model cards"),
    "a card": (lambda c: c.text("models/pnp/README.md", "pnp", "PNP"), "numbers in `report.html` and the model cards"),
    "no exported models": (removed("models"), "a missing `models/`"),
    "an engine's setting": (entry("search.yaml", "resources/cpus_per_trial", 3), "settings that may change"),
    "the identity": (added(".id", "x"), "`.id`, `mlflow.json`"),
    "the folder of no trial": (added("trials/pnp/more.json"), "files of no trial"),
    "the start of the trials": (lambda c: rewrite(c.journal, _earlier), "times"),
    "a time in the ledger": (chained(lambda line: {**line, "time": "2020"} if "scored" in line else line), "times"),
    "a search that opened no test": (chained(lambda line: None if "begun" in line else line), "a line of the ledger about another search"),
    "the opening, everywhere": (_never_opened, "an opening, from both ledgers, `test.json`, `test/` and the journal"),
    "the weights of a trial": (weights("trials/pnp/0001/*/best.safetensors"), "the weights of a model of the search"),
    **{f"{name}, sealed again": (sealed(change), says) for name, (change, says) in {
        "the date of an opening": (entry("test.json", f"{OPENING}/time", "2020-01-01T00:00:00Z"), "times"),
        "the time of the scoring": (entry("test.json", f"{OPENING}/finished", 0.0), "times"),
        "the sessions": (lambda c: c.study_attribute("proxy_anchor", "sessions", [0.0]), "times"),
        "the slots": (lambda c: c.study_attribute("proxy_anchor", "slots", 64), "number of slots"),
        "the reason of the opening": (entry("test.json", f"{OPENING}/reason", "another"), "the reason of an opening and the name of its search"),
        "who opened": (entry("test.json", f"{OPENING}/search", "other"), "the reason of an opening and the name of its search"),
        "a reason of an undefined metric": (entry("test.json", f"{SCORE}/undefined", {"nmi": "a reason"}), "why a trial failed or a metric is undefined"),
        "a trial that failed": (_failed, "why a trial failed or a metric is undefined"),
        "a loss": (epoch("pnp", 0, 1, loss=0.5), "an epoch's loss"),
        "a metric of an epoch": (lambda c: c.metric("pnp", 0, 1, "recall_at_1", 0.99), "other metric"),
        "a neighbour": (array("neighbours_QK", (3, 0), 3, lambda c: c.rankings[0]), "neighbours and thumbnails of test images"),
        "a thumbnail": (array("pictures", 20, lambda pixels: pixels ^ 1, lambda c: c.thumbnails), "neighbours and thumbnails of test images"),
    }.items()},
}
# fmt: on
"""What is changed in a finished search, and the words of the check that finds it, or of the page that names it."""


@pytest.mark.parametrize(("change", "says"), FOUND.values(), ids=FOUND)
def test_a_tampering_is_found(copied: Copied, change: Change, says: str) -> None:
    change(copied)
    said = verified(copied.runs, code=1)
    assert says in said.splitlines()[-1], said


@pytest.mark.parametrize(("change", "names"), NOT_FOUND.values(), ids=NOT_FOUND)
def test_a_tampering_that_is_not_found_is_named(copied: Copied, change: Change, names: str) -> None:
    change(copied)
    assert "Verified" in verified(copied.runs)
    assert names in " ".join((ROOT / "docs" / "verify.md").read_text().split())


def test_raised_values_are_found_by_a_final_training_that_is_retrained(copied: Copied) -> None:
    sealed(_raised)(copied)
    search = Records(RunFolder(copied.runs, "small"))
    *_, last = check_retrained(search, *trial_to_retrain(search, "pnp@final:0"))
    assert "pnp@final-0.npz scored again, map_at_r" in str(last.problem)
