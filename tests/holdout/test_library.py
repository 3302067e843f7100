"""Searches run, opened and compared from Python by ``import holdout``; its public parts, and modules that hide it."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from support.driving import Opened, only, record
from support.without_ray import MADE_UP, only_records

import holdout.parts
from examples import search_from_python
from examples.circle_loss import CircleLoss
from search.driver.stages import search_stage
from search.study.trial_queue import TrialQueue
from search.tables import ENGINES
from trainables.common.part_tables import PartTable
from trainables.data import DATASETS
from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.losses import LOSSES
from trainables.training.spec import Epochs

Files = Callable[..., dict[str, Any]]


def test_a_search_is_run_followed_opened_and_extended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A smaller version of the example runs its first stage, is extended, and is then run in full."""
    only_records(monkeypatch)
    smaller = {
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 6, "size": 20},
        "training": {"epochs": 2, "batch_size": 10, "images_per_class": 5, "image_size": 16},
        "search": {"trials": 1},
        "final": {"seeds": 1},
        "selection": {"finalists": 1, "seeds": 1},
    }
    content: dict[str, Any] = {**search_from_python.CONTENT, **smaller, "resources": MADE_UP}
    epochs = []
    search = holdout.run(
        content,
        {"stages": ["search"]},
        runs=tmp_path,
        quiet=True,
        on_epoch=lambda study, number, record: epochs.append((study, number, record["epoch"])),
    )
    assert sorted(epochs) == [(loss, 0, epoch) for loss in ("circle_loss", "proxy_anchor") for epoch in (1, 2)]

    trials = search.trials("proxy_anchor")
    assert list(trials["number"]) == [0]
    assert list(trials["state"]) == ["COMPLETE"]
    assert list(trials["params_margin"]) == [0.1]
    assert list(trials["epochs"]) == [2]
    history = search.history("proxy_anchor", 0)
    assert list(history["epoch"]) == [1, 2]
    assert history["map_at_r"].max() == trials["value"][0]
    study = optuna.load_study(
        study_name="from-python/proxy_anchor", storage=JournalStorage(JournalFileBackend(str(search.journal)))
    )
    assert [trial.value for trial in study.trials] == list(trials["value"])
    assert search.summary.losses["proxy_anchor"].trials.complete == 1
    assert search.summary.losses["proxy_anchor"].test is None

    with pytest.raises(holdout.InvalidInput, match=r"search\.pruner"):
        holdout.run({**content, "search": {"trials": 2, "pruner": "none"}}, runs=tmp_path, quiet=True)
    content["search"] = {"trials": 2}
    assert search_from_python.main(str(tmp_path), content).losses == ("proxy_anchor", "circle_loss")
    assert "Circle loss on the test classes" in capsys.readouterr().out
    opened = holdout.open("from-python", runs=tmp_path)
    assert len(opened.trials("proxy_anchor")) == 2
    test = opened.summary.losses["circle_loss"].test
    assert test is not None
    assert 0 <= test["recall_at_1"].mean <= 1
    assert len(opened.trials("circle_loss@final")) >= 1
    own = opened.trials("circle_loss")
    for named in (CircleLoss, "examples.circle_loss:CircleLoss"):
        assert opened.trials(named).equals(own)
        assert len(opened.history(named, 0)) == len(opened.history("circle_loss", 0))
        assert opened.trial(named, 0).row == opened.trial("circle_loss", 0).row
    every = opened.trials()
    assert list(every["loss"]) == ["proxy_anchor"] * 2 + ["circle_loss"] * len(own)
    assert list(every[every["loss"] == "circle_loss"]["value"]) == list(own["value"])
    with pytest.raises(holdout.InvalidInput, match=r"no loss 'examples.rings:Rings'; it has proxy_anchor, circle_loss"):
        opened.trials("examples.rings:Rings")
    assert opened.comparison() == holdout.compare("from-python", runs=tmp_path)


def test_mistakes_come_all_at_once_and_nothing_is_created(search_file: Files, tmp_path: Path) -> None:
    with pytest.raises(holdout.InvalidInput) as caught:
        holdout.run(search_file(), {"search.sampler": "tpu", "losses": ["mpaa"]}, runs=tmp_path / "runs")
    assert len(caught.value.sentences) == 2
    assert not (tmp_path / "runs").exists()
    with pytest.raises(holdout.InvalidInput, match="no search 'birds'"):
        holdout.open("birds", runs=tmp_path)
    with pytest.raises(
        holdout.InvalidInput, match=r"The runs folder is '.*\\udcff', which is no text in UTF-8; rename"
    ):
        holdout.run(search_file(), runs=tmp_path / "a\udcff", quiet=True)
    assert not list(tmp_path.iterdir())
    with pytest.raises(holdout.InvalidInput, match="No search is named; name one at least"):
        holdout.compare(runs=tmp_path)


def test_a_history_says_what_a_loss_used(opened: Opened) -> None:
    search = opened(losses=["triplet", "pnp"], search={"trials": 1})
    queue = TrialQueue(only(search_stage(search)))
    while job := queue.next_trial():
        for epoch in (1, 2, 3):
            used = {"used": {"triplets": 100 * epoch}} if job.loss == "triplet" else {}
            queue.on_trial_result(job, Epochs([{**record(epoch, 0.1), **used}], finished=epoch == 3))
    read = holdout.open("small", runs=search.folder.runs)
    assert list(read.history("triplet", 0)["triplets"]) == [100, 200, 300]
    assert list(read.history("triplet", 0)["batches"]) == [5, 5, 5]
    assert "triplets" not in read.history("pnp", 0)


def test_embeddings_from_anywhere_are_scored_against_each_other_or_a_gallery() -> None:
    """Two classes on two axes: all R nearest neighbours have the query's class."""
    embeddings = np.array([[1, 0.0], [1, 0.1], [0, 1.0], [0.1, 1]])
    found = holdout.evaluate(embeddings, [0, 0, 1, 1], ["recall_at_1", "map_at_r"])
    assert found == {"recall_at_1": 1.0, "map_at_r": 1.0}
    assert holdout.evaluate(embeddings, np.array([0, 1, 0, 1]))["recall_at_1"] == 0
    labels, asked = [0, 1, 1, 0], np.array([True, False, False, False])
    assert holdout.evaluate(embeddings, labels, ["map"], queries=asked, gallery=~asked) == {"map": 1 / 2}
    alone = holdout.evaluate(embeddings, labels, ["map"], queries=asked, gallery=[False, False, False, True])
    assert alone == {"map": 1.0}
    ignored = holdout.evaluate(embeddings, labels, ["map"], queries=asked, cameras=[1, 2, 3, 1])
    assert ignored == {"map": 0.0}
    with pytest.raises(
        holdout.InvalidInput, match=r"queries must have one entry for each of 4 embeddings; the shape is \(3"
    ):
        holdout.evaluate(embeddings, labels, queries=[1, 0, 0])
    for lacking in ("queries", "gallery"):
        with pytest.raises(holdout.InvalidInput, match="There is no query, or no item in the gallery"):
            holdout.evaluate(embeddings, labels, **{lacking: [0, 0, 0, 0]})


# What refusals and pages name is in ``holdout.parts``.


@pytest.mark.parametrize("table", [LOSSES, DATASETS, BATCH_SAMPLERS, ENGINES], ids=lambda table: table.kind)
def test_a_refusal_names_a_base_class_that_can_be_imported(table: PartTable[Any, Any]) -> None:
    with pytest.raises(holdout.InvalidInput, match=r"derives from holdout\.parts\.\w+;") as error:
        table["pathlib:Path"]
    (name,) = re.findall(r"holdout\.parts\.(\w+);", str(error.value))
    (row, *_) = table
    assert issubclass(table[row], getattr(holdout.parts, name))


# Modules of a user that have the name of one of our packages, beside an editable installation.

HOLDOUT = Path(sys.executable).with_name("holdout")
HIDES = r"Holdout is installed as editable, and .*{} hides its package {}\. Rename that, or install Holdout with"


@pytest.mark.parametrize(("name", "kind"), [("search", "module"), ("spaces", "package")])
def test_a_module_that_hides_a_package_is_a_sentence(tmp_path: Path, name: str, kind: str) -> None:
    file = tmp_path / (f"{name}.py" if kind == "module" else f"{name}/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("lr = 1e-3")
    (tmp_path / "tune.py").write_text("import holdout\nprint(holdout.run)")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def ends(*command: str | Path, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment | variables, check=False
        )
        return done.returncode, done.stderr

    sentence = HIDES.format(file.name, name)
    code, told = ends(sys.executable, "tune.py")
    assert code == 1
    assert re.fullmatch(f"ImportError: {sentence} .*", told.splitlines()[-1])
    code, told = ends(HOLDOUT, "status", PYTHONPATH=str(tmp_path))
    assert code == 2
    assert re.fullmatch(f"{sentence} .*\n", told)
