"""Retrieval metrics against a paper's table, plain loops and scikit-learn, and the libraries that search neighbours.

Shapes: N images, D embedding, Q queries, K ranks.
"""

import math
import re
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from support.expected_metrics import of_queries, over_permutations
from support.without_faiss import without_faiss

from trainables.common.errors import InvalidInput
from trainables.metrics import (
    METRICS,
    all_metrics,
    by_chance,
    gallery as gallery_module,
    largest_k,
    retrieval_names,
    unknown_metrics,
)
from trainables.metrics.evaluation import evaluate, per_query_metrics
from trainables.metrics.gallery import Gallery, full_float32
from trainables.metrics.retrieval import SCORES, Ranking, RetrievalProtocol

TABLE_3 = {  # the ranks of hits, and recall, precision, MAP and nDCG at 10, and MAP@R
    (1,): (100, 10, 10.0, 39.0, 25.0),
    (1, 10): (100, 20, 12.0, 50.3, 25.0),
    (1, 3): (100, 20, 16.7, 58.6, 41.7),
    (1, 3, 7, 10): (100, 40, 25.0, 82.9, 41.7),
    (1, 2, 3, 4): (100, 40, 40.0, 100.0, 100.0),
}


@pytest.mark.parametrize(("hits", "printed"), TABLE_3.items())
def test_table_3_of_the_mpa_paper(hits: tuple[int, ...], printed: tuple[float, ...]) -> None:
    """Compare percentages to the printed digit; R is 4 in all rows."""
    ranking = Ranking.of(torch.tensor([[rank in hits for rank in range(1, 11)]]), torch.tensor([4]))
    scores = [SCORES[f"{name}_at_k"](ranking, 10) for name in ("recall", "precision", "map", "ndcg")]
    scores.append(SCORES["map_at_r"](ranking, 4))
    assert tuple(round(100 * score.item(), 1) for score in scores) == printed


def naive(embeddings_ND: torch.Tensor, labels: list[int], name: str, **score: Any) -> list[float]:
    return list(of_queries(embeddings_ND, labels, name, **score).values())


@settings(max_examples=12, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-1, 1), st.integers(-1, 1), st.just(1)), min_size=2, max_size=6),
    labels=st.lists(st.integers(0, 2), min_size=6, max_size=6),
)
def test_ties_have_the_mean_over_all_permutations(rows: list[tuple[int, ...]], labels: list[int]) -> None:
    embeddings_ND, labels = torch.tensor(rows).float(), labels[: len(rows)]
    for name, score_N in per_query_metrics(embeddings_ND, torch.tensor(labels), ks=(1, 2, 3, 7)).items():
        mean = naive(embeddings_ND, labels, name, score=over_permutations)
        np.testing.assert_allclose(score_N.numpy(), mean, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(naive(embeddings_ND, labels, name), mean, atol=1e-12, err_msg=name)


@settings(max_examples=15, deadline=None)
@given(
    images=st.integers(2, 160),
    points=st.integers(1, 12),
    dimensions=st.integers(1, 9),
    scales=st.booleans(),
    seed=st.integers(0, 10**6),
    library=st.sampled_from(("faiss", "torch")),
)
def test_no_order_of_the_images_changes_a_metric(
    images: int, points: int, dimensions: int, scales: bool, seed: int, library: str
) -> None:
    """Draw from few points, whose coordinates are permuted and scaled, so that equal cosines differ in the last bit."""
    generator = np.random.default_rng(seed)
    points_PD = generator.permuted(np.tile(generator.normal(size=dimensions), (points, 1)), axis=1)
    embeddings_ND = points_PD[generator.integers(points, size=images)]
    if scales:
        embeddings_ND = embeddings_ND * generator.uniform(0.1, 10, size=(images, 1))
    labels_N = np.sort(generator.integers(max(images // 5, 1), size=images))
    order = generator.permutation(images)
    with without_faiss() if library == "torch" else nullcontext():
        found, shuffled = (
            per_query_metrics(torch.from_numpy(embeddings_ND[of]), torch.from_numpy(labels_N[of]))
            for of in (np.arange(images), order)
        )
    for name, score_N in found.items():
        np.testing.assert_allclose(shuffled[name].numpy(), score_N[order].numpy(), atol=1e-9, err_msg=name)


def clustered(labels: list[int], seed: int = 0, duplicates: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres_CD = torch.randn(max(labels) + 1, 7, generator=generator)
    embeddings_ND = centres_CD[torch.tensor(labels)] + torch.randn(len(labels), 7, generator=generator)
    if duplicates and len(labels) > 4:
        embeddings_ND[3], embeddings_ND[4] = embeddings_ND[0], embeddings_ND[1]
    return embeddings_ND


@settings(max_examples=15, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=12),
    others=st.lists(st.integers(4, 6), max_size=40),
    seed=st.integers(0, 1000),
)
def test_further_images_stand_in_the_gallery_alone(labels: list[int], others: list[int], seed: int) -> None:
    """Check images that are only in the gallery: neighbours, not queries, and ignored by other metrics."""
    embeddings_ND = clustered([*labels, *others], seed)
    every = torch.tensor([*labels, *others])
    names = ("recall_at_1", "map_at_3", "map_at_r", "map")
    found = evaluate(embeddings_ND, every, names, queries=len(labels))
    for name in names:
        expected = naive(embeddings_ND, every.tolist(), name)[: len(labels)]
        assert found[name] == pytest.approx(sum(expected) / len(labels), abs=1e-11), name
    of_images = ("nmi", "dists_intra")
    alone = evaluate(embeddings_ND[: len(labels)], every[: len(labels)], of_images)
    assert evaluate(embeddings_ND, every, of_images, queries=len(labels)) == pytest.approx(alone, nan_ok=True)


@settings(max_examples=15, deadline=None)
@example(labels=[0], seed=0)  # one image is a miss
@given(labels=st.lists(st.integers(0, 6), min_size=2, max_size=24), seed=st.integers(0, 1000))
def test_every_metric_of_every_query(labels: list[int], seed: int) -> None:
    embeddings_ND = clustered(labels, seed)
    scores = per_query_metrics(embeddings_ND, torch.tensor(labels), ks=(1, 3, 40))
    for name, score_N in scores.items():
        np.testing.assert_allclose(score_N.numpy(), naive(embeddings_ND, labels, name), atol=1e-12, err_msg=name)
    means = evaluate(embeddings_ND, torch.tensor(labels), retrieval_names((1, 3, 40)))
    assert means == {name: score_N.mean().item() for name, score_N in scores.items()}
    others_N = torch.tensor([labels.count(label) > 1 for label in labels])
    if others_N.any():
        means = evaluate(embeddings_ND, torch.tensor(labels), retrieval_names((1, 3, 40)), exclude_singletons=True)
        assert means == {name: score_N[others_N].mean().item() for name, score_N in scores.items()}


LARGE_LABELS = torch.arange(400) % 97


@pytest.fixture(scope="module")
def large() -> torch.Tensor:
    """Return more images than candidates, with duplicates across classes and embeddings that differ by rounding."""
    embeddings_ND = clustered(LARGE_LABELS.tolist(), duplicates=False)
    embeddings_ND[100:140] = embeddings_ND[7]
    embeddings_ND[200:260] = embeddings_ND[11:71]
    embeddings_ND[300:330] = embeddings_ND[8] * (1 + 1e-6 * torch.arange(30)[:, None])
    return embeddings_ND


@pytest.fixture(scope="module")
def of_large(large: torch.Tensor) -> dict[str, list[float]]:
    return {name: naive(large, LARGE_LABELS.tolist(), name) for name in ("map", "map_at_r", "ndcg_at_8")}


def test_candidates_rank_as_the_whole_does(large: torch.Tensor, of_large: dict[str, list[float]]) -> None:
    names = ["recall_at_1", "precision_at_4", "ndcg_at_8", "map_at_r", "r_precision"]
    few = per_query_metrics(large, LARGE_LABELS, names)
    whole = per_query_metrics(large, LARGE_LABELS, [*names, "ndcg_at_399"])  # all ranks
    for name in names:
        assert torch.equal(few[name], whole[name])
    for name in ("map_at_r", "ndcg_at_8"):
        np.testing.assert_allclose(few[name].numpy(), of_large[name], atol=1e-11)


@pytest.mark.parametrize("block", [64, 7])
def test_no_block_changes_a_metric(
    large: torch.Tensor, of_large: dict[str, list[float]], block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images are ranked in blocks for their memory."""
    limits = {"BLOCK_QUERIES": block, "BLOCK_BYTES": 64 * 400 * block, "BLOCK_RANKS": 400 * block}
    for name, value in limits.items():
        monkeypatch.setattr(gallery_module, f"_{name}", value)
    found_N = per_query_metrics(large, LARGE_LABELS, ["map"])["map"]
    np.testing.assert_allclose(found_N.numpy(), of_large["map"], atol=1e-11)


def test_without_faiss_the_same(large: torch.Tensor) -> None:
    names = ["recall_at_1", "map_at_r", "ndcg_at_8", "dists_intra"]
    expected = evaluate(large, LARGE_LABELS, names)
    with without_faiss():
        assert evaluate(large, LARGE_LABELS, names) == expected


def test_names() -> None:
    names = all_metrics((1, 10))
    assert unknown_metrics(names) == []
    wrong = ["recall", "recall_at_0", "recall_at_k", "recall_at_-1", "map_at_x", "recall@1", "r_precision_at_2", ""]
    assert unknown_metrics(wrong) == wrong
    assert largest_k(["recall_at_1", "ndcg_at_100", "map", "nmi"]) == 100
    assert largest_k(["map", "nmi"]) == 0
    assert list(evaluate(torch.eye(6), torch.arange(6) // 2, "all", ks=(1, 10))) == list(names)
    assert all(METRICS.values())


@pytest.mark.parametrize(
    ("embeddings", "labels", "sentence"),
    [
        (torch.zeros(0, 3), torch.zeros(0), "Embeddings must be N rows of D numbers, not of shape (0, 3)"),
        (torch.tensor([[1.0, math.nan], [1, 1]]), torch.zeros(2), "1 of 2 embeddings are zero or not finite (row 0 is"),
        (torch.tensor([[1.0, 1], [1, math.inf]]), torch.zeros(2), "1 of 2 embeddings are zero or not finite (row 1 is"),
        (torch.tensor([[1.0], [0], [0]]), torch.zeros(3), "2 of 3 embeddings are zero or not finite (row 1 is zero)"),
        (torch.ones(3, 2), torch.zeros(2), "Labels must be one per embedding"),
    ],
)
@pytest.mark.parametrize("name", ["recall_at_1", "nmi", "dists_intra"])
def test_what_cannot_be_scored_is_a_sentence(
    embeddings: torch.Tensor, labels: torch.Tensor, sentence: str, name: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(sentence)):
        evaluate(embeddings, labels, [name])


# Queries against a separate gallery.


NAMES = ("recall_at_1", "recall_at_4", "precision_at_4", "map_at_4", "ndcg_at_4", "map_at_r", "r_precision", "map")


def drawn(images: int, seed: int, cameras: bool = True) -> tuple[torch.Tensor, torch.Tensor, RetrievalProtocol]:
    """Draw embeddings of six classes, queries and gallery, which share images, and three ``cameras``."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = torch.randint(6, (images,), generator=generator)
    embeddings_ND = torch.randn(6, 5, generator=generator)[labels_N] + torch.randn(images, 5, generator=generator)
    embeddings_ND[images // 2] = embeddings_ND[1]
    queries_N, gallery_N = torch.rand(2, images, generator=generator) < torch.tensor([[0.5], [0.7]])
    queries_N[0], gallery_N[1:3] = True, True
    cameras_N = torch.randint(3, (images,), generator=generator) if cameras else None
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


@settings(max_examples=15, deadline=None)
@given(images=st.integers(4, 40), seed=st.integers(0, 1000), cameras=st.booleans())
def test_every_metric_of_queries_against_a_gallery(images: int, seed: int, cameras: bool) -> None:
    embeddings_ND, labels_N, protocol = drawn(images, seed, cameras)
    found = per_query_metrics(embeddings_ND, labels_N, NAMES, protocol=protocol)
    for name in NAMES:
        assert (~found[name].isnan()).tolist() == protocol.queries_N.tolist(), name
        scores = of_queries(embeddings_ND, labels_N.tolist(), name, galleries(labels_N, protocol))
        assert {q: found[name][q].item() for q in scores} == pytest.approx(scores, abs=1e-11), name


@pytest.mark.parametrize("cameras", [False, True])
def test_candidates_rank_as_a_sort_of_all(cameras: bool) -> None:
    """Use more images than are ranked exhaustively, so that the float32 search is used."""
    embeddings_ND, labels_N, protocol = drawn(600, 0, cameras)
    labels_N = labels_N + 6 * (torch.arange(600) // 30)
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


# The precision of the neighbour search, and chance.


def test_the_precision_that_is_allowed_is_restored() -> None:
    """PyTorch's older settings raise RuntimeError where its newer ones differ by operation."""
    cuda, cudnn, mkldnn = torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn
    of_operations = (cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv)
    at_first = [setting.fp32_precision for setting in of_operations]
    cuda.matmul.fp32_precision, cudnn.conv.fp32_precision = "tf32", "ieee"
    before = [setting.fp32_precision for setting in of_operations]
    with full_float32():
        assert {setting.fp32_precision for setting in of_operations} == {"ieee"}
    assert [setting.fp32_precision for setting in of_operations] == before
    for setting, precision in zip(of_operations, at_first, strict=True):
        setting.fp32_precision = precision


@settings(max_examples=30, deadline=None)
@given(labels=st.lists(st.integers(0, 5), min_size=2, max_size=30))
def test_chance_is_the_value_of_equal_embeddings(labels: list[int]) -> None:
    """Every ranking of equal embeddings is one tie, whose value is the mean over all of its orders."""
    sizes = [labels.count(label) for label in {*labels}]
    names = [name for name in retrieval_names((1, 2, 5)) if by_chance(name, sizes) is not None]
    assert {name for name in retrieval_names((1,)) if name not in names} == {"ndcg_at_1"}
    found = evaluate(torch.ones(len(labels), 3), torch.tensor(labels), names)
    assert found == pytest.approx({name: by_chance(name, sizes) for name in names})
