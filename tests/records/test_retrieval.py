"""What a test keeps: the ranking of its images, against plain loops in float64, and thumbnails.

Shapes: N images, D embedding.
"""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.image_stores import build_store

from search.records.retrieval_file import (
    ExampleKind,
    GalleryQuery,
    RetrievalFile,
    Thumbnails,
    _images,
    gallery_queries,
    make_pictures,
    map_images,
    sampled_queries,
)
from search.records.scoring import retrieval_of
from trainables.data.sets.glyphs import Glyphs
from trainables.metrics.evaluation import per_query_metrics
from trainables.metrics.retrieval import RetrievalProtocol

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


@pytest.mark.parametrize("images", [1, 5, 12, 150])
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


# The queries that a report shows, and their thumbnails.

KEYS = [f"{n}.png" for n in range(40)]
OF_FIVE = np.repeat(np.arange(8), 5)
"""The labels of eight classes of five images."""
ALL = np.arange(40, dtype=np.int32)


def rows_of(queries: list[GalleryQuery], kind: ExampleKind) -> list[int]:
    return [query.row for query in queries if query.kind is kind]


def test_best_median_worst_and_changed_are_of_different_classes() -> None:
    tuned_N = np.linspace(1, 0, 40)
    default_N = tuned_N.copy()
    default_N[[12, 13, 33]] += 0.5, -0.4, 0.1
    queries = gallery_queries(KEYS, OF_FIVE, ALL, tuned_N, default_N)
    assert rows_of(queries, ExampleKind.BEST) == [0, 5, 10], "the best of three classes"
    assert rows_of(queries, ExampleKind.WORST) == [39, 34, 29]
    assert len({int(OF_FIVE[row]) for row in rows_of(queries, ExampleKind.MEDIAN)} & {2, 3, 4, 5}) == 3
    assert rows_of(queries, ExampleKind.CHANGED) == [12, 33, 13], "two are of one class: the second comes after"
    assert len({query.row for query in queries}) == len(queries) == 12


def test_equals_go_by_digest_and_what_nobody_can_find_is_left_out() -> None:
    labels = np.array([0, 0, 0, 1])
    queries = gallery_queries(["a", "b", "c", "d"], labels, ALL[:4], np.zeros(4), np.zeros(4))
    assert sorted(query.row for query in queries) == [0, 1, 2], "the fourth is the one image of its class"
    assert not rows_of(queries, ExampleKind.CHANGED)
    assert queries == gallery_queries(["a", "b", "c", "d"], labels, ALL[:4], np.zeros(4), np.zeros(4))
    assert gallery_queries(["a", "b"], np.array([0, 1]), ALL[:2], np.zeros(2), np.zeros(2)) == []


def test_thumbnails_are_small_upright_and_as_many_as_have_room(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200, 150, 3), dtype=np.uint8)
    noise[:100] = 255, 0, 0
    given = [(0, noise), (1, np.full((20, 20, 3), 9, np.uint8))]
    pictures = make_pictures(given)
    shown = [Image.open(io.BytesIO(picture)) for picture in pictures.values()]
    assert [image.size for image in shown] == [(64, 85), (20, 20)], "none is enlarged"
    red = np.asarray(shown[0].convert("RGB"))
    assert red[:30].mean(axis=(0, 1)) == pytest.approx([254, 0, 0], abs=8), "the upper half"
    limit = len(pictures[0])
    assert make_pictures(given, limit) == {0: pictures[0]}
    assert make_pictures(given, limit - 1) == {}
    most = tuple(GalleryQuery(ExampleKind.WORST, row) for row in range(3))
    for queries, metric in ((most, "map_at_r"), ((), None)):
        kept = Thumbnails(pictures=pictures, queries=queries, metric=metric)
        path = tmp_path / "thumbnails.npz"
        path.write_bytes(kept.to_bytes())
        assert Thumbnails.read(path) == kept


def test_pictures_are_those_of_their_keys(tmp_path: Path) -> None:
    glyphs = Glyphs(num_classes=2, images_per_class=3, size=20)
    store = build_store(glyphs, list(glyphs.classes()), short_side=20, cache=tmp_path)
    keys = sorted((key for of_class in glyphs.classes().values() for key in of_class), reverse=True)
    for row, pixels in _images(store, glyphs, keys, [4, 1]):
        np.testing.assert_array_equal(pixels, np.asarray(glyphs.read(keys[row])))
