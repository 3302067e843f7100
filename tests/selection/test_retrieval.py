"""The stored ranking of the test images, against plain loops in float64, and a metric on a few test classes.

Shapes: N images, D embedding.
"""

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from search.selection.retrieval_file import RetrievalFile, map_images, sampled_queries
from search.selection.scoring import in_small_galleries, retrieval_of
from trainables.metrics import per_query_metrics
from trainables.metrics.protocol import RetrievalProtocol

NAMES = ("<b>a</b>", "$x$", "c", "alone", "e")


def tied(images: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
    """Return rows of −1 and 1 with many equal ones and equal distances; the fourth class has one image."""
    generator = np.random.default_rng(seed)
    labels = generator.choice([0, 1, 2, 4], images)
    labels[images // 2] = 3
    embeddings = generator.choice([-1.0, 1.0], (images, 5))
    return torch.from_numpy(embeddings).float(), torch.from_numpy(labels), [f"{n}.png" for n in range(images)]


def cosines(embeddings_ND: torch.Tensor) -> list[list[float]]:
    rows = [[float(value) for value in row] for row in embeddings_ND]
    lengths = [sum(value * value for value in row) ** 0.5 for row in rows]
    return [
        [round(sum(a * b for a, b in zip(rows[q], rows[j])) / lengths[q] / lengths[j], 11) for j in range(len(rows))]
        for q in range(len(rows))
    ]


@pytest.mark.parametrize("images", [12, 150])
def test_neighbours_and_embeddings(images: int, tmp_path: Path) -> None:
    embeddings_ND, labels_N, keys = tied(images)
    path = tmp_path / "retrieval.npz"
    path.write_bytes(retrieval_of(embeddings_ND, labels_N, keys, NAMES).to_bytes())
    found = RetrievalFile.read(path)
    cosine = cosines(embeddings_ND)
    for q in range(images):
        order = sorted((j for j in range(images) if j != q), key=lambda j: (-cosine[q][j], j))
        assert found.neighbours_QK[q].tolist() == order[:8], q
    assert found.queries_Q.tolist() == list(range(images))
    unit = embeddings_ND.double() / embeddings_ND.double().norm(dim=1, keepdim=True)
    np.testing.assert_allclose(found.embeddings_SD, unit[found.sample_S.tolist()], atol=1e-3)


def test_few_images_have_few_neighbours() -> None:
    for images in (1, 5):
        keys = [str(n) for n in range(images)]
        found = retrieval_of(torch.eye(5)[:images], torch.zeros(images).long(), keys, ("a",))
        assert found.neighbours_QK.shape == (images, images - 1)


def test_queries_have_neighbours_in_the_gallery_alone() -> None:
    """Every third image is a query, and a query ignores the images of its class by its own camera."""
    embeddings_ND, labels_N, keys = tied(70)
    asked, cameras = [n % 3 == 0 for n in range(70)], [n % 2 for n in range(70)]
    protocol = RetrievalProtocol(
        queries_N=torch.tensor(asked), gallery_N=~torch.tensor(asked), cameras_N=torch.tensor(cameras)
    )
    found = retrieval_of(embeddings_ND, labels_N, keys, NAMES, protocol)
    cosine, labels = cosines(embeddings_ND), labels_N.tolist()
    for place, q in enumerate(range(0, 70, 3)):
        gallery = [
            j for j in range(70) if not asked[j] and not (labels[j] == labels[q] and cameras[j] == cameras[q])
        ]  # fmt: skip
        assert found.neighbours_QK[place].tolist() == sorted(gallery, key=lambda j: (-cosine[q][j], j))[:8]
    assert found.queries_Q.tolist() == list(range(0, 70, 3))


def test_neighbours_say_what_the_metrics_say_where_all_is_close() -> None:
    """Embeddings that differ by less than float32's rounding are ranked in float64."""
    generator = np.random.default_rng(0)
    embeddings_ND = torch.from_numpy(1 + 1e-4 * generator.normal(size=(400, 8))).float()
    labels_N = torch.arange(400) % 20
    found = retrieval_of(embeddings_ND, labels_N, [str(n) for n in range(400)], [str(n) for n in range(20)])
    hit = labels_N[found.neighbours_QK[:, 0].astype(int)] == labels_N
    assert hit.double().tolist() == per_query_metrics(embeddings_ND, labels_N, ["recall_at_1"])["recall_at_1"].tolist()


def test_samples_go_by_digests_and_are_bounded() -> None:
    keys = [f"{n}.png" for n in range(40)]
    labels_N = np.arange(40) % 5
    digest = lambda name: hashlib.sha256(name.encode()).hexdigest()  # noqa: E731
    expected = [
        row
        for name in sorted(NAMES, key=digest)[:2]
        for row in sorted((n for n in range(40) if labels_N[n] == NAMES.index(name)), key=lambda n: digest(keys[n]))[:3]
    ]
    assert map_images(keys, labels_N, NAMES, classes=2, images=3).tolist() == sorted(expected)
    assert sampled_queries(keys, 7).tolist() == sorted(sorted(range(40), key=lambda n: digest(keys[n]))[:7])
    assert sampled_queries(keys, 40).tolist() == list(range(40))
    odd = sorted(range(1, 40, 2), key=lambda n: digest(keys[n]))
    assert sampled_queries(keys, 7, np.arange(40) % 2 == 1).tolist() == sorted(odd[:7])


# A metric on a few test classes.

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
