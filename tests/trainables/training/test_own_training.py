"""A user-defined training as a training: its numbers, its checkpoints, what it sees, and its failures."""

import gc
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.odd_input import IMPORTS, NO_NUMBERS, REAL
from support.own_trainings import EACH, PlaceInTheList, Records, own_spec, trained, vectors
from support.small_training import drawn_images, run, small_spec, worker_of

from trainables.common.errors import InvalidInput
from trainables.data.dataset import Dataset
from trainables.data.store.view import Store, StoreView
from trainables.metrics.evaluation import evaluate
from trainables.training.checkpoints import parsed_state
from trainables.training.cross_validation import begin
from trainables.training.own import OwnTraining, _numbers
from trainables.training.trainable import Items

CPU = torch.device("cpu")
SCALES = "support.own_trainings:Scales"


@pytest.mark.parametrize("of_own", [True, False])
def test_a_clock_that_is_set_back_changes_no_duration(
    of_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = own_spec(tmp_path, SCALES) if of_own else small_spec(drawn_images(tmp_path), tmp_path, epochs=1)
    moments = itertools.count(1_800_000_000, -86_400)
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    (record,) = worker_of(spec).step().records
    assert 0 < record["end"] - record["start"] < 600


def written(expression: str) -> Any:
    exec(f"{IMPORTS}import decimal, fractions, pandas", names := {})
    return eval(expression, names)


@pytest.mark.parametrize("half", [*REAL, "decimal.Decimal('{}')", "fractions.Fraction('{}')", "torch.tensor([{}])"])
def test_a_number_of_any_library_is_its_value(half: str) -> None:
    assert _numbers("train_epoch", {"loss": written(half.format(0.5))}) == {"loss": 0.5}


@pytest.mark.parametrize("value", [*NO_NUMBERS, "10**400", "pandas.NA"])
def test_what_is_no_number_is_refused_with_its_name(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^train_epoch must return numbers; loss is "):
        _numbers("train_epoch", {"loss": written(value)})


def test_the_objective_is_that_of_the_embeddings(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCALES, epochs=1, validates=(1, 3), metrics=("recall_at_1",), objective="recall_at_1")
    (record,) = trained(spec)
    assert (record["epoch"], record["batches"], set(record["reported"])) == (1, 1, {"largest"})
    saved = parsed_state((Path(spec.directory) / "attempt-1/last.pt").read_bytes())["files"]
    weights = torch.tensor(json.loads(bytes(saved["file:in/folders/weights.json"].numpy())))
    dataset = Records()
    items = [(name, dataset.read(key)) for name in spec.validation_classes for key in dataset.classes()[name]]
    found = (vectors([item for _, item in items]) * weights).double().numpy()
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    hits = 0
    for query, (name, _) in enumerate(items):
        others = [row for row in range(len(items)) if row != query]
        hits += items[max(others, key=lambda row: found[query] @ found[row])][0] == name
    assert record["metrics"]["recall_at_1"] == pytest.approx(hits / len(items))


def test_the_tested_model_is_that_of_the_best_epoch(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, SCALES, validates=())
    training = run(spec)
    test = replace(spec.images, class_names=("class-6", "class-7"))
    view, embeddings_ND = OwnTraining.tested(spec, Path(spec.directory) / "attempt-1/best.safetensors", test, CPU)
    assert view.image_keys == tuple(f"{label}-{number}" for label in (6, 7) for number in range(EACH))
    expected = vectors([Records().read(key) for key in view.image_keys]) * training._own.weights
    torch.testing.assert_close(embeddings_ND, expected)


def test_the_order_of_the_items_says_nothing_of_their_classes(tmp_path: Path) -> None:
    spec = own_spec(tmp_path, "support.own_trainings:PlaceInTheList", epochs=1, validates=())
    trained(spec)
    checkpoint = Path(spec.directory) / "attempt-1/best.safetensors"
    images = replace(spec.images, class_names=tuple(Records().classes()))
    view, found_ND = OwnTraining.tested(spec, checkpoint, images, CPU)
    in_order_ND = PlaceInTheList().embed(view.items)
    known, blind = (evaluate(of, view.labels_N, ["map_at_r"])["map_at_r"] for of in (in_order_ND, found_ND))
    assert known > 3 * blind


def test_a_later_collapse_leaves_the_best_epoch(tmp_path: Path) -> None:
    records = trained(own_spec(tmp_path, "support.own_trainings:CollapsesLater", validates=(0, 1)))
    assert [record["checkpoint"] is not None for record in records] == [True, False, False]


def items_of(folder: Path) -> Items:
    return begin(own_spec(folder, SCALES), CPU)._own.train


def test_nothing_but_its_own_items_can_be_reached_from_what_it_gets(tmp_path: Path) -> None:
    train = items_of(tmp_path)
    assert [item["key"] for item in train.items] == [
        f"{label}-{number}" for label in (0, 1, 2) for number in range(EACH)
    ]
    assert train.labels.tolist() == [label for label in range(3) for _ in range(EACH)]
    seen: dict[int, object] = {}
    waiting: list[object] = [train]
    while waiting:
        entry = waiting.pop()
        if id(entry) not in seen and not isinstance(entry, type) and not callable(entry):
            seen[id(entry)] = entry
            waiting += gc.get_referents(entry)
    assert not any(isinstance(entry, Dataset | Store | StoreView | np.memmap) for entry in seen.values())
    assert not any(isinstance(entry, str) and entry.startswith("3-") for entry in seen.values())


def test_features_and_images_are_copies(tmp_path: Path) -> None:
    before = Records().read("0-0")["vector"].copy()
    items_of(tmp_path).items[0]["vector"][:] = 0
    np.testing.assert_array_equal(items_of(tmp_path).items[0]["vector"], before)


@pytest.mark.parametrize(
    ("name", "cause", "sentence"),
    [
        ("Short", "CODE_ERROR", "embed must return a row for each of 6 items; it returned 5 × 8."),
        ("NotFinite", "DIVERGED", "are zero or not finite (row 0 is not finite)."),
        ("Constant", "DIVERGED", "Of the validation items, all 6 embeddings have the same direction."),
        ("LossNotFinite", "DIVERGED", "The training loss became inf in epoch 1."),
        ("NoNumbers", "CODE_ERROR", "train_epoch must return numbers; loss is 'low'."),
        ("SavesNothing", "CODE_ERROR", "save must write what load needs into its folder; it wrote no file."),
        ("one_report", "CODE_ERROR", "The function returned after 1 report, and training.epochs is 3;"),
    ],
)
def test_a_mistake_in_the_code_is_a_sentence(tmp_path: Path, name: str, cause: str, sentence: str) -> None:
    worker = worker_of(own_spec(tmp_path, f"support.own_trainings:{name}"))
    news = worker.step()
    if name == "one_report":
        news = worker.step()
    worker.end()
    assert news.cause == cause
    assert sentence in news.reason
