"""A metric on a few test classes, against all ways to choose them."""

import itertools

import numpy as np
import pytest
import torch

from search.selection.scoring import in_small_galleries

LABELS = np.repeat(np.arange(6), 8)


def embeddings(spread: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(6, 4))
    made = centres[LABELS] + generator.normal(0, spread, (48, 4))
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def recall_at_1(found: np.ndarray, labels: np.ndarray) -> float:
    similarities = found @ found.T
    np.fill_diagonal(similarities, -np.inf)
    return float(np.mean(labels[similarities.argmax(1)] == labels))


def measured(found: np.ndarray, classes: int) -> float:
    return in_small_galleries(torch.from_numpy(found).float(), torch.from_numpy(LABELS), "recall_at_1", classes)


def test_it_is_the_mean_over_choices_of_classes() -> None:
    found = embeddings(1.5)
    every = [
        recall_at_1(found[chosen], LABELS[chosen])
        for classes in itertools.combinations(range(6), 3)
        for chosen in [np.isin(LABELS, classes)]
    ]
    assert measured(found, 3) == pytest.approx(np.mean(every), abs=4 * np.std(every) / 20**0.5)
    assert measured(found, 3) == measured(found, 3)


def test_fewer_classes_are_easier_and_all_of_them_are_the_metric_itself() -> None:
    found = embeddings(1.5)
    assert measured(found, 2) > measured(found, 4) > measured(found, 6)
    assert measured(found, 6) == measured(found, 9) == pytest.approx(recall_at_1(found, LABELS))
