"""A metric on a few test classes, against all ways to choose them."""

import itertools

import numpy as np
import pytest
import torch

from search.selection.scoring import in_small_galleries
from trainables.metrics.protocol import RetrievalProtocol

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


def test_classes_without_queries_are_not_drawn() -> None:
    """Queries of three classes among five, against a gallery of all: pairs of the three are drawn."""
    found = embeddings(1.5)
    asked = (np.arange(48) % 2 == 0) & (LABELS < 3)
    protocol = RetrievalProtocol(queries_N=torch.from_numpy(asked), gallery_N=torch.from_numpy(~asked))
    similarities = found @ found.T
    values = []
    for classes in itertools.combinations(range(3), 2):
        within = np.isin(LABELS, classes)
        nearest = np.where(within & ~asked, similarities, -np.inf)[asked & within].argmax(1)
        values.append(np.mean(LABELS[nearest] == LABELS[asked & within]))
    measured = in_small_galleries(
        torch.from_numpy(found).float(), torch.from_numpy(LABELS), "recall_at_1", 2, protocol=protocol
    )
    assert measured == pytest.approx(np.mean(values), abs=4 * np.std(values) / 20**0.5)


def test_fewer_classes_are_easier_and_all_of_them_are_the_metric_itself() -> None:
    found = embeddings(1.5)
    assert measured(found, 2) > measured(found, 4) > measured(found, 6)
    assert measured(found, 6) == measured(found, 9) == pytest.approx(recall_at_1(found, LABELS))
