"""Clustering and distance metrics against scikit-learn and plain loops; memory of many items.

Shapes: N images, D embedding.
"""

import math
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import normalized_mutual_info_score, pair_confusion_matrix
from support.without_faiss import without_faiss
from torch.utils._python_dispatch import TorchDispatchMode

from search.records import scoring
from trainables.common.errors import InvalidInput
from trainables.metrics import DISTANCES, SUPERCLASSES, all_metrics, evaluation, gallery
from trainables.metrics.evaluation import agreement, evaluate, kmeans, metric_parts

PARTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


@settings(max_examples=30, deadline=None)
@given(parts=PARTS)
def test_agreement_is_scikit_learns(parts: list[tuple[int, int]]) -> None:
    labels, clusters = zip(*parts)
    values = agreement(torch.tensor(labels), torch.tensor(clusters))
    assert values["nmi"] == pytest.approx(normalized_mutual_info_score(labels, clusters), abs=1e-9)
    (_, fp), (fn, tp) = pair_confusion_matrix(labels, clusters)
    expected = 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 1.0
    assert values["f1"] == pytest.approx(expected)


def blobs(classes: int, each: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(classes * each) % classes
    embeddings_ND = 5 * torch.eye(classes)[labels_N]
    return embeddings_ND + 0.1 * torch.randn(embeddings_ND.shape, generator=generator), labels_N


def starts(unit_ND: torch.Tensor, clusters: int, seed: int) -> torch.Tensor:
    """Choose images by their place along one direction, so that their order does not matter."""
    direction_D = torch.randn(unit_ND.shape[1], generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    places = [sum(a * b for a, b in zip(row, direction_D.tolist())) for row in unit_ND.double().tolist()]
    order = sorted(range(len(places)), key=lambda image: round(places[image], 11))
    chosen = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(seed))[:clusters]
    return unit_ND[torch.tensor(order)[chosen]]


def plain_kmeans(unit_ND: torch.Tensor, clusters: int, seed: int) -> torch.Tensor:
    """Compute k-means in float64: 25 iterations over all images and centres, and a last assignment."""
    centres_CD = starts(unit_ND, clusters, seed).double()
    unit_ND = unit_ND.double()
    for _ in range(25):
        nearest_N = _nearest(unit_ND, centres_CD)
        for cluster in nearest_N.unique().tolist():
            centres_CD[cluster] = unit_ND[nearest_N == cluster].mean(0)
    return _nearest(unit_ND, centres_CD)


def _nearest(unit_ND: torch.Tensor, centres_CD: torch.Tensor) -> torch.Tensor:
    distances_NC = (unit_ND[:, None] - centres_CD).square().sum(2)
    return (distances_NC - distances_NC.amin(1, keepdim=True) < 1e-11).long().argmax(1)


@pytest.mark.parametrize("with_faiss", [True, False])
@pytest.mark.parametrize(("images", "clusters", "dimensions"), [(400, 60, 8), (300, 5, 6), (200, 30, 2), (50, 50, 3)])
def test_clusters_are_plain_kmeans(
    images: int, clusters: int, dimensions: int, with_faiss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Include duplicates and images equally near to several centres, which are common in two dimensions."""
    if not with_faiss:
        monkeypatch.setitem(sys.modules, "faiss", None)
    generator = torch.Generator().manual_seed(0)
    embeddings_ND = 2 * torch.randn(images, dimensions, generator=generator)
    unit_ND = torch.nn.functional.normalize(embeddings_ND.round() if dimensions == 2 else embeddings_ND)
    assert torch.equal(kmeans(unit_ND, clusters, seed=3), plain_kmeans(unit_ND, clusters, seed=3))


def drawn_set(dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    classes, noise = 24, dimensions**0.5 / 8
    labels_N = torch.arange(12 * classes) % classes
    centres_CD = torch.randn(classes, dimensions, generator=generator)
    embeddings_ND = centres_CD[labels_N] + noise * torch.randn(len(labels_N), dimensions, generator=generator)
    return torch.nn.functional.normalize(embeddings_ND), labels_N


def test_clusters_do_not_depend_on_the_order_of_images() -> None:
    unit_ND, _ = drawn_set(64)
    order_N = torch.randperm(len(unit_ND), generator=torch.Generator().manual_seed(0))
    assert torch.equal(kmeans(unit_ND[order_N], 20, seed=1), kmeans(unit_ND, 20, seed=1)[order_N])


def test_superclasses_are_found_again_by_as_many_clusters() -> None:
    """Compare three clusters of twelve classes in three superclasses with scikit-learn."""
    embeddings_ND, labels_N = blobs(12, 20)
    superclasses_N = labels_N % 3 + 4
    unit_ND = torch.nn.functional.normalize(embeddings_ND.double()).float()
    clusters_N = kmeans(unit_ND, 3, seed=0)
    names = ["f1_super", "nmi", "nmi_super"]
    values = evaluate(embeddings_ND, labels_N, names, superclasses_N=superclasses_N)
    assert list(values) == names
    assert values["nmi_super"] == pytest.approx(normalized_mutual_info_score(superclasses_N, clusters_N), abs=1e-9)
    (_, fp), (fn, tp) = pair_confusion_matrix(superclasses_N, clusters_N)
    assert values["f1_super"] == pytest.approx(2 * tp / (2 * tp + fp + fn))
    assert values["nmi"] == evaluate(embeddings_ND, labels_N, ["nmi"])["nmi"]
    of_queries = evaluate(embeddings_ND[:60], labels_N[:60], names, superclasses_N=superclasses_N[:60])
    assert evaluate(embeddings_ND, labels_N, names, queries=60, superclasses_N=superclasses_N) == of_queries


def test_superclasses_have_to_be_given() -> None:
    embeddings_ND, labels_N = blobs(4, 3)
    for compute in (evaluate, metric_parts):
        with pytest.raises(InvalidInput, match="nmi_super compares clusters with superclasses, and there are none"):
            compute(embeddings_ND, labels_N, ["nmi", "nmi_super"])
    with pytest.raises(InvalidInput, match="Labels must be one per embedding"):
        evaluate(embeddings_ND, labels_N, ["f1_super"], superclasses_N=labels_N[:5])
    assert not set(SUPERCLASSES) & set(all_metrics())  # only by name


@settings(max_examples=15, deadline=None)
@given(labels=st.lists(st.integers(0, 3), min_size=2, max_size=15), seed=st.integers(0, 999))
def test_distances_by_loops(labels: list[int], seed: int) -> None:
    embeddings_ND = torch.randn(len(labels), 5, generator=torch.Generator().manual_seed(seed))
    rows = torch.nn.functional.normalize(embeddings_ND.double())
    members = {label: [rows[i] for i in range(len(labels)) if labels[i] == label] for label in sorted(set(labels))}

    def mean_distance(vectors: list[torch.Tensor]) -> float:
        pairs = [(u, v) for j, v in enumerate(vectors) for u in vectors[:j]]
        return sum(1 - (u @ v).item() for u, v in pairs) / len(pairs)

    several = [mean_distance(vectors) for vectors in members.values() if len(vectors) > 1]
    means = [torch.stack(vectors).mean(0) for vectors in members.values()]
    values = evaluate(embeddings_ND, torch.tensor(labels), list(DISTANCES))
    if several:
        assert values["dists_intra"] == pytest.approx(sum(several) / len(several), abs=1e-9)
    else:
        assert math.isnan(values["dists_intra"])
    if len(means) > 1:
        inter = mean_distance([mean / mean.norm() for mean in means])
        assert values["dists_inter"] == pytest.approx(inter, abs=1e-9)
        if several:
            assert values["dists_ratio"] == pytest.approx(values["dists_intra"] / inter)
    else:
        assert math.isnan(values["dists_inter"])


# Scores of many items, in memory that grows as they do.


class Largest(TorchDispatchMode):
    """The bytes of the largest tensor that an operation returned."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        tensors = [entry for entry in torch.utils._pytree.tree_leaves(found) if isinstance(entry, torch.Tensor)]
        self.bytes = max([self.bytes, *(entry.numel() * entry.element_size() for entry in tensors)])
        return found


def drawn(items: int, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(items) % classes
    return torch.randn(classes, 8, generator=generator)[labels_N] + torch.randn(items, 8, generator=generator), labels_N


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (gallery, evaluation, scoring):
        for name in {"_BLOCK_BYTES", "_BLOCK_RANKS", "_BLOCK_NUMBERS", "_ROWS", "_BLOCK_PAIRS"} & vars(module).keys():
            monkeypatch.setattr(module, name, getattr(module, name) >> 7)
    with without_faiss():  # tensors of torch are seen
        yield


@pytest.mark.usefixtures("small_blocks")
def test_no_table_of_all_pairs_is_made() -> None:
    """Neither of items nor of items and classes: twice as many need twice the memory, not four times."""
    peaks = []
    for items in (800, 1600):
        embeddings_ND, labels_N = drawn(items, items // 4)
        with Largest() as largest:
            evaluate(embeddings_ND, labels_N, ["map", "map_at_r", "recall_at_8", "nmi", "dists_ratio"])
            keys = list(map(str, range(items)))
            scoring.retrieval_of(embeddings_ND, labels_N, keys, keys)
        peaks.append(largest.bytes)
    assert peaks[1] <= 2.2 * peaks[0]
    assert peaks[1] < 1600 * 1600
