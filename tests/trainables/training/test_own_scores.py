"""A training that scores its items itself: its metrics, its checkpoints, what it sees, and its failures."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.own_trainings import EACH, Records, own_spec, trained, vectors
from support.small_training import worker_of

from trainables.mistakes import Mistakes
from trainables.training.checkpoints import load_checkpoint
from trainables.training.cross_validation import begin
from trainables.training.own import OwnTraining
from trainables.training.scores import Scores, checked_scores
from trainables.training.trainable import trainable_class

CPU = torch.device("cpu")
NEAREST = "support.own_trainings:Nearest"
FUNCTION = "support.own_trainings:scored_scales"
METRICS = {NEAREST: ("hit", "neg_distance", "largest_share"), FUNCTION: ("hit", "neg_norm")}


def spec_of(folder: Path, path: str = NEAREST, **changes: Any) -> Any:
    metrics = METRICS.get(path, METRICS[NEAREST])
    return own_spec(folder, path, **{"validates": (1, 3), "metrics": metrics, "objective": metrics[0], **changes})


def test_the_metrics_are_means_over_the_validation_items(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, epochs=1)
    (record,) = trained(spec)
    saved = load_checkpoint(Path(spec.directory) / "attempt-1/last.pt")["files"]
    weights = np.array(json.loads(bytes(saved["file:in/folders/weights.json"].numpy())), dtype=np.float32)
    dataset = Records()
    by_class = [
        [vectors([dataset.read(key)])[0].numpy() * weights for key in dataset.classes()[name]]
        for name in spec.validation_classes
    ]
    centres = [np.mean(rows, axis=0) for rows in by_class]
    hits, distances, nearest = 0, [], []
    for label, rows in enumerate(by_class):
        for row in rows:
            of_centres = [float(np.sqrt(((row - centre) ** 2).sum())) for centre in centres]
            nearest.append(of_centres.index(min(of_centres)))
            hits += nearest[-1] == label
            distances.append(of_centres[label])
    assert record["metrics"] == pytest.approx(
        {
            "hit": hits / len(distances),
            "neg_distance": -sum(distances) / len(distances),
            "largest_share": max(nearest.count(0), nearest.count(1)) / len(nearest),
        },
        rel=1e-5,
    )


def test_only_the_metrics_of_the_spec_are_recorded(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, epochs=1, metrics=("neg_distance",), objective="neg_distance")
    assert {*trained(spec)[0]["metrics"]} == {"neg_distance"}


@pytest.mark.parametrize("path", [NEAREST, FUNCTION])
def test_a_resumed_training_gives_the_same_scores(tmp_path: Path, path: str) -> None:
    whole = trained(spec_of(tmp_path / "whole", path))
    spec = spec_of(tmp_path / "killed", path)
    killed = begin(spec, CPU)
    killed.run_epoch()
    killed.wait_for_checkpoints()
    killed.end()
    assert [record["metrics"] for record in trained(spec)] == [record["metrics"] for record in whole]


def test_negative_values_have_a_best_epoch(tmp_path: Path) -> None:
    records = trained(spec_of(tmp_path, objective="neg_distance"))
    values = [record["metrics"]["neg_distance"] for record in records]
    assert max(values) < 0
    assert [record["checkpoint"] is not None for record in records] == [
        value > max(values[:epoch], default=-np.inf) for epoch, value in enumerate(values)
    ]


def test_the_tested_scores_are_those_of_the_kept_model(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, validates=())
    trained(spec)
    test = replace(spec.images, class_names=("class-6", "class-7"))
    view, found = OwnTraining.tested(spec, Path(spec.directory) / "attempt-1/best.safetensors", test, CPU)
    assert isinstance(found, Scores)
    assert view.image_keys == tuple(f"{label}-{number}" for label in (6, 7) for number in range(EACH))
    assert found.per_item(("hit", "neg_distance", "largest_share")) == ("hit", "neg_distance")
    assert {name: values.shape for name, values in found.values.items()} == {
        "hit": (2 * EACH,), "neg_distance": (2 * EACH,), "largest_share": ()
    }  # fmt: skip
    assert found.means(["hit"]) == {"hit": np.mean(found.values["hit"])}


def test_a_function_that_is_run_again_must_give_the_same_scores(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, FUNCTION)
    trained(spec)
    checkpoint = Path(spec.directory) / "attempt-1/best.safetensors"
    with pytest.raises(Mistakes, match="the training gives other scores, so its model cannot be restored"):
        OwnTraining.tested(replace(spec, seed=8), checkpoint, spec.images, CPU)


@pytest.mark.parametrize(
    ("name", "cause", "sentences"),
    [
        ("ScoresTooFew", "CODE_ERROR", ["score must return hit as a number, or as one number for each of 12 items"]),
        (
            "ScoresLack",
            "CODE_ERROR",
            [
                "score returned 'hits', which metrics does not declare (did you mean hit?); add",
                "score must return every metric that the class declares; largest_share is missing.",
                "score must return neg_distance as a number, or as an array with a number per item; it returned str.",
            ],
        ),
        ("ScoresList", "CODE_ERROR", ["score must return hit as a number, or as an array with a number per item; it"]),
        ("ScoresNone", "CODE_ERROR", ["score must return a mapping from metrics to values; it returned list."]),
        ("ScoresComplex", "CODE_ERROR", ["score must return real numbers; hit is complex128."]),
        ("ScoresNotFinite", "DIVERGED", ["score returned neg_distance that is not finite."]),
        ("embeds_instead", "CODE_ERROR", ["it reports a function that returns them: report(score=…)."]),
    ],
)
def test_a_mistake_in_the_code_is_a_sentence(tmp_path: Path, name: str, cause: str, sentences: list[str]) -> None:
    worker = worker_of(spec_of(tmp_path, f"support.own_trainings:{name}", metrics=("hit",)))
    news = worker.step()
    worker.end()
    assert news["failure"]["cause"] == cause
    for sentence in sentences:
        assert sentence in news["failure"]["reason"]


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("Undeclared", ["has a method score and declares no metrics; name all that it returns"]),
        (
            "Misdeclared",
            [
                "declares metrics and has no method score, which returns them",
                *(f"has the metric {name}, a name that Holdout uses" for name in ("map_at_r", "f1", "keys")),
                "has the metric 'top-1'; name it with letters, digits and underscores",
                "has the metric x more than once",
            ],
        ),
    ],
)
def test_a_class_with_wrong_metrics_is_refused(name: str, sentences: list[str]) -> None:
    with pytest.raises(Mistakes) as refused:
        trainable_class(f"support.own_trainings:{name}")
    for sentence in sentences:
        assert any(sentence in found for found in refused.value.sentences), refused.value.sentences


@pytest.mark.parametrize(
    "value",
    [
        np.float32(0.5),
        torch.tensor(0.5),
        torch.tensor([0.0, 1.0, 0.5, 0.5], dtype=torch.bfloat16),
        True,
        np.ones(4, int),
    ],
)
def test_numbers_and_arrays_of_every_kind_are_scores(value: object) -> None:
    own = trainable_class("support.own_trainings:scored_scales")
    found = checked_scores({"hit": value, "neg_norm": 0}, own, 4)
    assert found.means(["hit"])["hit"] in (0.5, 1.0)
    assert all(values.dtype == np.float64 for values in found.values.values())
