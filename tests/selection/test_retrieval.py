"""The stored ranking of the test images, against plain loops in float64.

Shapes: N images, D embedding.
"""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from search.selection.retrieval_file import RetrievalFile, map_images, sampled_queries
from search.selection.scoring import retrieval_of
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


@pytest.mark.parametrize("images", [12, 70, 300])
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


@pytest.mark.parametrize("images", [1, 2, 5])
def test_few_images_have_few_neighbours(images: int) -> None:
    embeddings_ND, labels_N = torch.eye(5)[:images], torch.zeros(images).long()
    found = retrieval_of(embeddings_ND, labels_N, [str(n) for n in range(images)], ("a",))
    assert found.neighbours_QK.shape == (images, images - 1)


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
