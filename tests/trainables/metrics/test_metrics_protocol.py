"""Metrics of queries against a separate gallery, against loops in float64.

Shapes: N images, D embedding.
"""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.expected_metrics import of_queries

from trainables.metrics import evaluate, per_query_metrics
from trainables.metrics.protocol import RetrievalProtocol
from trainables.metrics.ranking import Gallery

NAMES = ("recall_at_1", "recall_at_4", "precision_at_4", "map_at_4", "ndcg_at_4", "map_at_r", "r_precision", "map")


def drawn(images: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, RetrievalProtocol]:
    """Draw embeddings of six classes, queries and gallery, which share images, and three cameras."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(6, (images,), generator=generator)
    embeddings_ND = torch.randn(6, 5, generator=generator)[labels_N] + torch.randn(images, 5, generator=generator)
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


def without_cameras(protocol: RetrievalProtocol) -> RetrievalProtocol:
    return RetrievalProtocol(queries_N=protocol.queries_N, gallery_N=protocol.gallery_N)


@settings(max_examples=15, deadline=None)
@given(images=st.integers(4, 40), seed=st.integers(0, 1000), cameras=st.booleans())
def test_every_metric_of_queries_against_a_gallery(images: int, seed: int, cameras: bool) -> None:
    embeddings_ND, labels_N, protocol = drawn(images, seed)
    protocol = protocol if cameras else without_cameras(protocol)
    found = per_query_metrics(embeddings_ND, labels_N, NAMES, protocol=protocol)
    for name in NAMES:
        assert (~found[name].isnan()).tolist() == protocol.queries_N.tolist(), name
        scores = of_queries(embeddings_ND, labels_N.tolist(), name, galleries(labels_N, protocol))
        assert {q: found[name][q].item() for q in scores} == pytest.approx(scores, abs=1e-11), name


@pytest.mark.parametrize("cameras", [False, True])
def test_candidates_rank_as_a_sort_of_all(cameras: bool) -> None:
    """Use more images than are ranked exhaustively, so that the float32 search is used."""
    embeddings_ND, labels_N, protocol = drawn(600, 0)
    labels_N = labels_N + 6 * (torch.arange(600) // 30)
    protocol = protocol if cameras else without_cameras(protocol)
    unit_ND = torch.nn.functional.normalize(embeddings_ND.double())
    cosine = (unit_ND @ unit_ND.T).numpy()
    found = per_query_metrics(embeddings_ND, labels_N, ["recall_at_1", "map_at_r"], protocol=protocol)
    queries_Q = protocol.queries_N.nonzero().flatten()
    nearest_QK = Gallery(embeddings_ND, labels_N, protocol).neighbours(queries_Q, 4)
    for place, (q, gallery) in enumerate(galleries(labels_N, protocol).items()):
        order = [gallery[at] for at in np.lexsort((gallery, -cosine[q][gallery].round(11)))]
        assert nearest_QK[place].tolist() == order[:4]
    for name, values in found.items():
        scores = of_queries(embeddings_ND, labels_N.tolist(), name, galleries(labels_N, protocol))
        assert {q: values[q].item() for q in scores} == pytest.approx(scores, abs=1e-11)


def test_further_images_join_the_gallery_of_a_protocol() -> None:
    embeddings_ND, labels_N, protocol = drawn(40, 5)
    more_ND, more_N, _ = drawn(25, 6)
    joined_ND, joined_N = torch.cat((embeddings_ND, more_ND)), torch.cat((labels_N, more_N + 6))
    found = evaluate(joined_ND, joined_N, NAMES, queries=40, protocol=protocol)
    joined = {q: [*gallery, *range(40, 65)] for q, gallery in galleries(labels_N, protocol).items()}
    for name in NAMES:
        values = of_queries(joined_ND, joined_N.tolist(), name, joined)
        assert found[name] == pytest.approx(sum(values.values()) / len(values), abs=1e-11)
