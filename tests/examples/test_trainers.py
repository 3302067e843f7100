"""The trainings of libraries: plain scripts run, few lines differ, and a kill changes nothing; the notebook runs.

What the libraries document is in `tests/trainables/training/test_library_uses.py`.
"""

import json
import re
import runpy
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from support.commands import ROOT, holdout_here, summary
from support.finished_search import finish
from support.kinds import example
from support.own_trainings import own_spec, trained
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

import holdout
from examples.texts import Languages
from examples.trainers import tiny
from examples.trainers.tiny import Pictures, Signs
from spaces.contract.check_part import DrawnFeatures
from trainables.data.sets.features import FeatureFile
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics.evaluation import evaluate
from trainables.training.cross_validation import begin
from trainables.training.spec import TrialSpec
from trainables.training.trainable import Items, network_embeddings, trainable_class

FOLDER = ROOT / "examples/trainers"
PAGE = (ROOT / "docs/own_training.md").read_text()
MOST_CHANGED = 15
DATA: dict[str, Any] = {
    "pairs": Languages(sentences=6),
    "cached": Languages(sentences=6),
    "matryoshka": Languages(sentences=6),
    "lora": Languages(sentences=6),
    "image_text": Signs(),
    "memory": DrawnFeatures(),
    "lightning_module": DrawnFeatures(),
    "oml_loop": DrawnFeatures(),
    "timm_loop": Pictures(),
    "discriminant": DrawnFeatures(),
}

pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers"),
    pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad=True to a scalar"),
]
each = pytest.mark.parametrize("name", DATA)


def scripts(name: str) -> list[list[str]]:
    return [path.read_text().splitlines() for path in (FOLDER / f"plain/{name}.py", FOLDER / f"{name}.py")]


def test_every_example_has_its_plain_script() -> None:
    assert {path.stem for path in (FOLDER / "plain").glob("[a-z]*.py")} == {*DATA}


@each
def test_few_lines_are_changed_as_the_page_says(name: str) -> None:
    changes = SequenceMatcher(None, *scripts(name), autojunk=False).get_opcodes()
    count = sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal")
    assert 0 < count <= MOST_CHANGED
    assert f"[`{name}.py`](../examples/trainers/{name}.py) | {count} |" in PAGE


@each
def test_a_plain_script_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tiny, "sentences", lambda: tiny.of_all(Languages(languages=3, sentences=6)))
    monkeypatch.setattr(tiny, "signs", lambda: tiny.of_all(Signs(signs=2)))
    runpy.run_module(f"examples.trainers.plain.{name}", run_name="__main__")
    assert [*tmp_path.rglob("*")], "the trained model is saved"


def spec_of(name: str, folder: Path) -> TrialSpec:
    dataset, path = DATA[name], f"examples.trainers.{name}:{name}"
    names = tuple(dataset.classes())[:6]
    return replace(
        own_spec(folder, path, epochs=2),
        hyperparameters={key: entry.default for key, entry in trainable_class(path).space.items()},
        images=StoreSpec(dataset=dataset, class_names=names, short_side=32, cache=str(folder / "cache")),
        train_classes=names[:4], validation_classes=names[4:],
    )  # fmt: skip


def test_the_short_training_on_the_page_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code, data = re.findall(r"```python\n(# (?:mylab|draw)\.py\n.*?)```", PAGE, re.DOTALL)
    Path("short_training.py").write_text(code)
    Path("draw.py").write_text(data)
    runpy.run_path("draw.py")
    dataset = FeatureFile(file="vectors.npz")
    names = tuple(dataset.classes())
    images = StoreSpec(dataset=dataset, class_names=names, short_side=32, cache=str(tmp_path / "cache"))
    spec = replace(
        own_spec(tmp_path, "short_training:mine", epochs=20),
        hyperparameters={"lr": 1e-2}, images=images, train_classes=names[:20], validation_classes=names[20:],
    )  # fmt: skip
    vectors = np.stack([dataset.read(key) for name in names[20:] for key in dataset.classes()[name]])
    untrained = evaluate(torch.from_numpy(vectors), torch.arange(300) // 15, ["map_at_r"])["map_at_r"]
    assert trained(spec)[-1]["metrics"]["map_at_r"] > untrained + 0.2


class Killed(BaseException):
    """The end of a process, which nothing handles."""


@pytest.mark.parametrize("name", sorted(DATA.keys() - {"cached", "matryoshka"}))  # as pairs but for losses
def test_killed_in_an_epoch_it_ends_with_the_same_numbers(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here", "whole", "killed"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    whole = trained(spec_of(name, tmp_path / "whole"))
    spec = spec_of(name, tmp_path / "killed")
    training = begin(spec, torch.device("cpu"))
    training.run_epoch()
    training.wait_for_checkpoints()

    def kill(*_: Any) -> None:
        raise Killed

    hook = register_optimizer_step_post_hook(kill)
    try:
        with nullcontext() if name == "discriminant" else pytest.raises(Killed):  # an estimator takes no steps
            training.run_epoch()
    finally:
        hook.remove()
        training.end()
    resumed = trained(spec)
    assert len(resumed) == spec.training.epochs
    for before, after in zip(whole, resumed, strict=True):
        for key in ("epoch", "batches", "loss", "metrics", "reported"):
            assert before.get(key) == after.get(key), key
    assert not [path for path in Path().rglob("*") if path.is_file()], "nothing is written into the current folder"


def test_a_network_gets_tensors_as_the_training_did() -> None:
    pictures = [np.full((4, 4, 3), value, dtype=np.uint8) for value in range(200)]
    train = Items(items=pictures, labels=np.arange(200), class_names=tuple(map(str, range(200))))
    network = nn.Sequential(nn.Dropout(), nn.Linear(1, 1, dtype=torch.float64))

    def transform(picture: Any) -> torch.Tensor:
        return torch.tensor([picture.getpixel((0, 0))[0]], dtype=torch.float64)

    pairs = train.dataset(transform)
    assert [(item.item(), label) for item, label in (pairs[3], pairs[199])] == [(3, 3), (199, 199)]
    found = network_embeddings(network, network, pictures, train)
    assert torch.equal(found, network[1](torch.arange(200, dtype=torch.float64)[:, None]))
    assert network[0].training
    vectors = np.ones((2, 1), dtype=np.float32)
    plain = Items(items=vectors, labels=np.arange(2), class_names=("a", "b"))
    assert torch.equal(
        network_embeddings(network, network, vectors, plain), network[1](torch.ones(2, 1, dtype=torch.float64))
    )


# Searches, to their verified scores, and the contract.


def test_sentence_transformers_are_tested_verified_and_embed_as_the_test_did(tmp_path: Path) -> None:
    runs, languages = tmp_path / "runs", Languages()
    dataset, changes = {"name": "examples.texts:Languages"}, {"search": {"trials": 1}, "final": {"seeds": 1}}
    trainable = "examples.trainers.lora:lora"
    content = example("function_training", dataset=dataset, trainable=trainable, training={"epochs": 1}, **changes)
    folder = finish(runs, {**content, "name": "lora"}) / "lora"
    assert 0 < summary(runs, "lora")["losses"]["lora"]["default"]["test"]["map_at_r"]["mean"] <= 1
    holdout_here("verify", "lora", "--runs", runs)
    saved = next((folder / "models").glob("*/saved"))
    model = holdout.load(saved.parent, trust_code=True)
    keys, test = languages.classes(), json.loads((folder / "split.json").read_text())["test"]
    texts = [languages.read(key) for name in test for key in keys[name]]
    labels = [name for name in test for _ in keys[name]]
    (opening,) = json.loads((folder / "test.json").read_text())["openings"]
    number = model.spec.origin["trial"]
    (scored,) = [entry for entry in opening["scores"] if entry["per_image"] == f"lora@final-{number}.npz"]
    again = holdout.evaluate(model.embed(texts), labels, ["map_at_r"])
    assert again["map_at_r"] == pytest.approx(scored["metrics"]["map_at_r"], abs=1e-6)
    from sentence_transformers import SentenceTransformer  # takes seconds, also where this test is only collected

    library = SentenceTransformer(str(saved / "model"), device="cpu")
    assert library.encode(["badaga mima"], show_progress_bar=False).shape == (1, 32)


def test_pictures_and_texts_of_one_list_keep_their_places(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(tiny.clip()).save_pretrained(str(tmp_path / "model"), create_model_card=False)
    embed = holdout.SentenceTransformerTrainable.predictor(tmp_path, {}, device=torch.device("cpu"))
    items = tiny.signs()[0][:5]
    assert {type(item) for item in items} == {str, np.ndarray}
    torch.testing.assert_close(embed(items), torch.cat([embed([item]) for item in items]), rtol=1e-4, atol=1e-5)


# The notebook, whose cells run from the search to a table.

NOTEBOOK = ROOT / "examples" / "first_search.ipynb"
PROGRAM = """
import json, sys
if __name__ == "__main__":  # the engine's processes import this file
    space = {}
    for cell in json.loads(sys.argv[1]):
        exec(cell, space)
    print(json.dumps([list(space["table"]["loss"]), len(space["search"].trials("pnp"))]))
"""


@pytest.mark.slow
def test_the_notebook_ends_with_a_table(tmp_path: Path) -> None:
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "outputs are not stored"
    code = [cell for cell in cells if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", [])]
    program = tmp_path / "cells.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, json.dumps(["".join(cell["source"]) for cell in code])],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    losses, trials = json.loads(done.stdout.splitlines()[-1])
    assert set(losses) == {"proxy_anchor", "pnp"}
    assert trials == 4
