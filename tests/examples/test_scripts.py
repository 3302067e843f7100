"""Scripts that were written from the documentation of their libraries, and what a search of them changes."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import ndiff
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.own_trainings import own_spec, trained

from examples.texts import Languages
from examples.trainers import tiny
from examples.trainers.tiny import Pictures
from trainables.data.sets.features import FeatureFile
from trainables.data.store.store_spec import StoreSpec
from trainables.training.cross_validation import begin
from trainables.training.spec import TrialSpec
from trainables.training.trainable import trainable_class

FOLDER = Path(__file__).parent / "scripts"
PAGE = (Path(__file__).parents[2] / "docs/own_training.md").read_text()


def vectors(folder: Path) -> FeatureFile:
    """Write vectors of twelve classes."""
    generator, labels = np.random.default_rng(0), np.repeat(np.arange(12), 6)
    drawn = generator.normal(size=(12, 32))[labels] + generator.normal(size=(72, 32))
    np.savez(folder / "vectors.npz", embeddings=drawn.astype(np.float32), labels=labels)
    return FeatureFile(file=str(folder / "vectors.npz"))


DATA: dict[str, Any] = {
    "reviews": lambda _: Languages(sentences=8),
    "signs": lambda _: Pictures(),
    "speakers": vectors,
}
each = pytest.mark.parametrize("name", DATA)
pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The '.*_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:Importing from 'sentence_transformers"),
]


ENDS = {
    "reviews": "    trainer.train()",
    "signs": "    trainer.fit(model, train_loader, val_loader)",
    "speakers": "        scheduler.step()",
}
"""The last line of the training; what a script does after it is not reached by a search, and not counted."""


@each
def test_few_lines_are_removed_and_added(name: str) -> None:
    plain, adapted = ((FOLDER / file).read_text().splitlines() for file in (f"plain/{name}.py", f"{name}.py"))
    lines = ndiff(plain[: plain.index(ENDS[name]) + 1], adapted)
    changes = [line for line in lines if line[0] in "+-" and line[2:].strip()]
    added = sum(line[0] == "+" for line in changes)
    assert (added <= 8, len(changes) <= 15) == (True, True), changes
    assert f"`{name}.py` {len(changes)}" in PAGE


def spec_of(name: str, folder: Path) -> TrialSpec:
    dataset = DATA[name](folder)
    names = tuple(dataset.classes())[:12]
    images = StoreSpec(dataset=dataset, class_names=names, short_side=32, cache=str(folder / "cache"))
    params = {key: entry.default for key, entry in trainable_class(f"{name}:{name}").space.items()}
    spec = own_spec(folder, f"{name}:{name}", epochs=3)
    return replace(spec, hyperparameters=params, images=images, train_classes=names[:8], validation_classes=names[8:])


def made(place: Path, name: str) -> Path:
    (place / name).mkdir()
    return place / name


def numbers(records: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [tuple(record.get(key) for key in ("metrics", "loss", "reported")) for record in records]


@each
def test_an_adapted_script_trains_and_resumes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("MODEL", tiny.bert())
    folder = partial(made, tmp_path)
    monkeypatch.chdir(folder("here"))
    whole = numbers(trained(spec_of(name, folder("whole"))))
    spec = spec_of(name, folder("twice"))
    training = begin(spec, torch.device("cpu"))
    training.run_epoch()
    training.wait_for_checkpoints()
    training.end()
    assert numbers(trained(spec)) == whole
    assert len(whole) == 3
    assert not [path for path in Path().rglob("*") if path.is_file()], "the folders that the script names stay empty"
