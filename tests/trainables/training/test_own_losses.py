"""A user's loss or metric that teaches or tells nothing is a sentence, in the first step."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from support.small_training import drawn_images, small_spec
from torch import nn

from spaces.space import Space
from trainables.data.store.spec import StoreSpec
from trainables.errors import InvalidInput
from trainables.losses.base import Loss
from trainables.metrics import evaluate
from trainables.training.train import failure_of, train

WAYS: dict[str, tuple[Callable[[torch.Tensor, torch.Tensor], Any], str]] = {
    "constant": (lambda value, _: torch.tensor(0.0), "must return a scalar tensor"),
    "number": (lambda value, _: 0.5, "must return a scalar tensor"),
    "terms": (lambda value, terms_B: terms_B, "must return a scalar tensor"),
    "detached": (lambda value, _: value, "gives the network no gradient; do not detach embeddings."),
    "forgotten": (lambda value, _: value, r"has parameters that would not be learned \(layer.weight, layer.bias\); "),
}


class Odd(Loss):
    """A classifier that returns its loss in one of WAYS."""

    space: ClassVar[Space] = {}

    def __init__(self, *, num_classes: int, embedding_dim: int, way: str) -> None:
        super().__init__()
        self.layer, self.way = nn.Linear(embedding_dim, num_classes), way

    def parameter_groups(self, proxy_lr: float | None) -> list[dict[str, Any]]:
        return [] if self.way == "forgotten" else [{"params": self.layer.parameters(), "lr": 0.01}]

    def compute(self, embeddings_BD: torch.Tensor, labels_B: torch.Tensor) -> Any:
        given_BD = embeddings_BD.detach() if self.way == "detached" else embeddings_BD
        terms_B = nn.functional.cross_entropy(self.layer(given_BD), labels_B, reduction="none")
        return WAYS[self.way][0](terms_B.mean(), terms_B)


@pytest.mark.parametrize("way", WAYS)
def test_a_loss_that_teaches_nothing_is_a_sentence(way: str, images: StoreSpec, tmp_path: Path) -> None:
    spec = small_spec(images, tmp_path, epochs=1)
    spec = replace(spec, loss=f"{__name__}:Odd", hyperparameters={"way": way})
    with pytest.raises(InvalidInput, match=f"^The loss {__name__}:Odd {WAYS[way][1]}"):
        list(train(spec))


def nothing(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> None:
    pass


def many(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> torch.Tensor:
    return labels_N


def leaves(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> None:
    raise SystemExit(3)


def empties(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    embeddings_ND.zero_()
    return 0.5


def undefined(embeddings_ND: torch.Tensor, labels_N: torch.Tensor) -> float:
    return math.nan


@pytest.mark.parametrize("metric", ["nothing", "many", "leaves"])
def test_a_metric_without_a_number_is_a_sentence(metric: str) -> None:
    words = f"^The metric {__name__}:{metric} must return a number; it (raises|returned) .*; fix its code.$"
    with pytest.raises(InvalidInput, match=words):
        evaluate(torch.eye(4), torch.arange(4) // 2, [f"{__name__}:{metric}"])


def test_a_metric_changes_no_embeddings() -> None:
    embeddings = torch.eye(4)
    assert evaluate(embeddings, torch.arange(4) // 2, [f"{__name__}:empties"]) == {"empties": 0.5}
    assert torch.equal(embeddings, torch.eye(4))


def test_a_training_goes_on_if_a_metric_is_undefined(tmp_path: Path) -> None:
    """Validation classes of one image each have no distance within a class."""
    images = drawn_images(tmp_path)
    names = images.class_names
    for name in names[4:]:
        for file in sorted((tmp_path / "images" / name).iterdir())[1:]:
            file.unlink()
    metrics = ("map_at_r", f"{__name__}:undefined", "dists_intra")
    spec = small_spec(images, tmp_path, epochs=1)
    (record,) = train(replace(spec, train_classes=names[:4], validation_classes=names[4:], metrics=metrics))
    assert [*record["metrics"].values()] == [0.0, None, None]


def test_an_exception_whose_text_raises_has_a_reason() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise KeyError

    failure = failure_of(Silent())
    assert failure == {"cause": "CODE_ERROR", "reason": "Silent: its text cannot be shown (KeyError)"}
