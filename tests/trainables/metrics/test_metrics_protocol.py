"""Metrics of queries against a separate gallery, and refined rankings, against loops in float64.

Shapes: N images, D embedding.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainables.metrics import evaluate, per_query_metrics
from trainables.metrics.protocol import RetrievalProtocol
from trainables.metrics.ranking import Gallery
from trainables.metrics.table import (
    MOST_RERANKED,
    REFINEMENTS,
    split_at_k,
    split_refinement,
    too_many_to_rerank,
    unknown_metrics,
)

NAMES = ("recall_at_1", "recall_at_4", "precision_at_4", "map_at_4", "ndcg_at_4", "map_at_r", "r_precision", "map")


def score(hits: list[bool], name: str) -> float:
    """Compute one metric of a query from the relevance of its ranked gallery."""
    relevant = sum(hits)
    k = relevant if name in ("map_at_r", "r_precision") else len(hits) if name == "map" else int(name[-1])
    first = hits[:k]
    precisions = [sum(hits[: i + 1]) / (i + 1) for i in range(len(first)) if first[i]]
    if name.startswith("recall"):
        return float(any(first))
    if name.startswith("precision") or name == "r_precision":
        return sum(first) / max(k, 1)
    if name.startswith("ndcg"):
        ideal = sum(1 / math.log2(i + 2) for i in range(min(relevant, k)))
        return sum(hit / math.log2(i + 2) for i, hit in enumerate(first)) / ideal if ideal else 0.0
    return sum(precisions) / max(relevant if name == "map" else k, 1)


def drawn(images: int, seed: int, duplicates: bool = True) -> tuple[torch.Tensor, torch.Tensor, RetrievalProtocol]:
    """Draw embeddings of six classes, queries and gallery, which share images, and three cameras."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(6, (images,), generator=generator)
    embeddings_ND = torch.randn(6, 5, generator=generator)[labels_N] + torch.randn(images, 5, generator=generator)
    if duplicates:
        embeddings_ND[images // 2] = embeddings_ND[1]
    queries_N, gallery_N = torch.rand(2, images, generator=generator) < torch.tensor([[0.5], [0.7]])
    queries_N[0], gallery_N[1:3] = True, True
    cameras_N = torch.randint(3, (images,), generator=generator)
    return embeddings_ND, labels_N, RetrievalProtocol(queries_N=queries_N, gallery_N=gallery_N, cameras_N=cameras_N)


def galleries(labels_N: torch.Tensor, protocol: RetrievalProtocol) -> dict[int, list[int]]:
    """Return the gallery of each query, without the images that it ignores."""
    labels, queries, gallery = labels_N.tolist(), protocol.queries_N.tolist(), protocol.gallery_N.tolist()
    cameras = None if protocol.cameras_N is None else protocol.cameras_N.tolist()
    return {
        q: [
            j
            for j in range(len(labels))
            if gallery[j] and j != q and not (cameras and labels[j] == labels[q] and cameras[j] == cameras[q])
        ]
        for q in range(len(labels))
        if queries[q]
    }


def similarities(embeddings_ND: torch.Tensor) -> list[list[float]]:
    rows = torch.nn.functional.normalize(embeddings_ND.double()).tolist()
    return [[round(sum(a * b for a, b in zip(row, other, strict=True)), 11) for other in rows] for row in rows]


def without_cameras(protocol: RetrievalProtocol) -> RetrievalProtocol:
    return RetrievalProtocol(queries_N=protocol.queries_N, gallery_N=protocol.gallery_N)


@settings(max_examples=25, deadline=None)
@given(images=st.integers(4, 40), seed=st.integers(0, 1000), cameras=st.booleans())
def test_every_metric_of_queries_against_a_gallery(images: int, seed: int, cameras: bool) -> None:
    embeddings_ND, labels_N, protocol = drawn(images, seed)
    protocol = protocol if cameras else without_cameras(protocol)
    cosine = similarities(embeddings_ND)
    expected = {
        q: [bool(labels_N[j] == labels_N[q]) for j in sorted(gallery, key=lambda j: (-cosine[q][j], j))]
        for q, gallery in galleries(labels_N, protocol).items()
    }
    found = per_query_metrics(embeddings_ND, labels_N, NAMES, protocol=protocol)
    for name in NAMES:
        assert (~found[name].isnan()).tolist() == protocol.queries_N.tolist(), name
        for q, hits in expected.items():
            assert found[name][q].item() == pytest.approx(score(hits, name), abs=1e-11), (name, q)


@pytest.mark.parametrize("cameras", [False, True])
def test_candidates_rank_as_a_sort_of_all(cameras: bool) -> None:
    """Use more images than are ranked exhaustively, so that the float32 search is used."""
    embeddings_ND, labels_N, protocol = drawn(600, 0)
    labels_N = labels_N + 6 * (torch.arange(600) // 30)
    protocol = protocol if cameras else without_cameras(protocol)
    cosine = np.array(similarities(embeddings_ND))
    found = per_query_metrics(embeddings_ND, labels_N, ["recall_at_1", "map_at_r"], protocol=protocol)
    queries_Q = protocol.queries_N.nonzero().flatten()
    nearest_QK = Gallery(embeddings_ND, labels_N, protocol).neighbours(queries_Q, 4)
    for place, (q, gallery) in enumerate(galleries(labels_N, protocol).items()):
        order = [gallery[at] for at in np.lexsort((gallery, -cosine[q][gallery]))]
        hits = [bool(labels_N[j] == labels_N[q]) for j in order]
        assert nearest_QK[place].tolist() == order[:4]
        for name, values in found.items():
            assert values[q].item() == pytest.approx(score(hits, name), abs=1e-11)


def test_all_images_as_queries_and_gallery_is_the_default() -> None:
    embeddings_ND, labels_N, _ = drawn(60, 3)
    every = RetrievalProtocol.first(60, 60)
    names = (*NAMES, *(f"map_at_r_{refinement}" for refinement in REFINEMENTS))
    expected = evaluate(embeddings_ND, labels_N, names)
    assert evaluate(embeddings_ND, labels_N, names, protocol=every) == expected


def test_further_images_join_the_gallery_of_a_protocol() -> None:
    embeddings_ND, labels_N, protocol = drawn(40, 5)
    more_ND, more_N, _ = drawn(25, 6)
    joined_ND, joined_N = torch.cat((embeddings_ND, more_ND)), torch.cat((labels_N, more_N + 6))
    found = evaluate(joined_ND, joined_N, NAMES, queries=40, protocol=protocol)
    cosine = similarities(joined_ND)
    for name in NAMES:
        values = []
        for q, gallery in galleries(labels_N, protocol).items():
            order = sorted([*gallery, *range(40, 65)], key=lambda j, q=q: (-cosine[q][j], j))  # type: ignore[misc]
            values.append(score([bool(joined_N[j] == joined_N[q]) for j in order], name))
        assert found[name] == pytest.approx(sum(values) / len(values), abs=1e-11)


# Refined rankings.


def reranked(embeddings_ND: torch.Tensor, k1: int = 20, k2: int = 6, share: float = 0.3) -> list[list[float]]:
    """Compute the final distances of all images (Zhong et al. 2017), by sets and loops."""
    cosine = similarities(embeddings_ND)
    images = range(len(cosine))
    d = [[max(2 - 2 * s, 0) for s in row] for row in cosine]
    d = [[value / max(row) for value in row] for row in d]
    ranked = [[i, *sorted((j for j in images if j != i), key=lambda j, i=i: (-cosine[i][j], j))] for i in images]  # type: ignore[misc]

    def nearest(i: int, k: int) -> set[int]:
        return set(ranked[i][: k + 1])

    def reciprocal(i: int, k: int) -> set[int]:
        return {j for j in nearest(i, k) if i in nearest(j, k)}

    encoded = []
    for i in images:
        expanded = set(reciprocal(i, k1))
        for j in reciprocal(i, k1):
            half = reciprocal(j, k1 // 2)
            if len(reciprocal(i, k1) & half) >= 2 / 3 * len(half):
                expanded |= half
        weights = [math.exp(-d[i][j]) if j in expanded else 0.0 for j in images]
        encoded.append([weight / sum(weights) for weight in weights])
    v = [[sum(encoded[j][c] for j in ranked[i][:k2]) / k2 for c in images] for i in images]
    final = []
    for i in images:
        jaccard = [
            1 - sum(map(min, v[i], v[j])) / sum(map(max, v[i], v[j]))  # type: ignore[arg-type]
            for j in images
        ]
        final.append([(1 - share) * jaccard[j] + share * d[i][j] for j in images])
    return final


def expanded(embeddings_ND: torch.Tensor, of: list[bool], gallery: list[bool]) -> list[list[float]]:
    """Return unit vectors, those ``of`` the mask plus their ten nearest in the gallery, weighted by similarity³."""
    cosine = similarities(embeddings_ND)
    rows = torch.nn.functional.normalize(embeddings_ND.double()).tolist()
    made = []
    for i, row in enumerate(rows):
        near = sorted((j for j in range(len(rows)) if gallery[j] and j != i), key=lambda j: (-cosine[i][j], j))[:10]
        sums = [x + sum(max(cosine[i][j], 0) ** 3 * rows[j][at] for j in near) for at, x in enumerate(row)]
        length = math.sqrt(sum(x * x for x in sums))
        made.append([x / length for x in sums] if of[i] else row)
    return made


def heights(refinement: str, embeddings_ND: torch.Tensor, protocol: RetrievalProtocol) -> list[list[float]]:
    """Return what a refinement ranks by, the highest first."""
    if refinement == "reranked":
        return [[-value for value in row] for row in reranked(embeddings_ND)]
    plain = torch.nn.functional.normalize(embeddings_ND.double()).tolist()
    queries, gallery = protocol.queries_N.tolist(), protocol.gallery_N.tolist()
    left = expanded(embeddings_ND, queries, gallery) if refinement == "aqe" else plain
    right = expanded(embeddings_ND, gallery, gallery) if refinement == "dba" else plain
    return [[sum(a * b for a, b in zip(row, other, strict=True)) for other in right] for row in left]


@pytest.mark.parametrize("refinement", REFINEMENTS)
@pytest.mark.parametrize("seed", range(3))
def test_refined_rankings(refinement: str, seed: int) -> None:
    embeddings_ND, labels_N, protocol = drawn(80, seed, duplicates=False)
    high = heights(refinement, embeddings_ND, protocol)
    names = ["map", "map_at_r", "recall_at_1"]
    found = per_query_metrics(embeddings_ND, labels_N, [f"{name}_{refinement}" for name in names], protocol=protocol)
    plain = per_query_metrics(embeddings_ND, labels_N, names, protocol=protocol)
    for q, gallery in galleries(labels_N, protocol).items():
        order = sorted(gallery, key=lambda j, q=q: (-round(high[q][j], 11), j))  # type: ignore[misc]
        hits = [bool(labels_N[j] == labels_N[q]) for j in order]
        for name in names:
            assert found[f"{name}_{refinement}"][q].item() == pytest.approx(score(hits, name), abs=1e-11)
    assert not torch.equal(found[f"map_{refinement}"].nan_to_num(), plain["map"].nan_to_num())


@pytest.mark.parametrize("images", [1, 2, 5])
def test_refined_rankings_of_few_or_equal_images(images: int) -> None:
    labels_N = torch.arange(images) // 2
    for embeddings_ND in (torch.eye(images), torch.ones(images, 3)):
        values = evaluate(embeddings_ND, labels_N, [f"recall_at_1_{refinement}" for refinement in REFINEMENTS])
        assert all(0 <= value <= 1 for value in values.values())


def test_names_of_refined_metrics() -> None:
    assert split_refinement("recall_at_10_dba") == ("recall_at_10", "dba")
    assert split_at_k("recall_at_10_reranked") == ("recall_at_k", 10)
    assert unknown_metrics(["map_aqe", "nmi_dba", "map_reranked_dba", "mylab:f_dba"]) == ["nmi_dba", "map_reranked_dba"]


def test_too_many_images_are_not_reranked() -> None:
    assert too_many_to_rerank(MOST_RERANKED) is None
    assert "there are 65,537; it is limited to 65,536" in str(too_many_to_rerank(MOST_RERANKED + 1))
