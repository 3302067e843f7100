"""Metrics of embeddings on a GPU equal those on a CPU.

Shapes: N images, D embedding.
"""

import pytest
import torch

from trainables.metrics import all_metrics, evaluate
from trainables.metrics.clustering import kmeans
from trainables.metrics.ranking import Gallery, nearest

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")


def made(images: int, classes: int, dimensions: int, *, ties: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return embeddings around class centres; with ``ties`` on a coarse grid, and every tenth image twice."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(images) % classes
    centres_CD = torch.randn(classes, dimensions, generator=generator)
    embeddings_ND = centres_CD[labels_N] + 1.5 * torch.randn(images, dimensions, generator=generator)
    if ties:
        embeddings_ND = embeddings_ND.round()
        embeddings_ND[embeddings_ND.abs().sum(1) == 0] = 1
        embeddings_ND[1::10] = embeddings_ND[::10]
    return embeddings_ND, labels_N


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("images", "classes", "dimensions"), [(600, 40, 3), (3_000, 500, 64), (400, 1, 8)])
def test_every_metric_is_the_cpus(images: int, classes: int, dimensions: int, ties: bool) -> None:
    embeddings_ND, labels_N = made(images, classes, dimensions, ties=ties)
    expected = evaluate(embeddings_ND, labels_N, all_metrics())
    for labels in (labels_N, labels_N.cuda()):
        assert evaluate(embeddings_ND.cuda(), labels, all_metrics()) == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("allowed", ["highest", "high"])
def test_neighbours_are_searched_in_float32_whatever_training_allows(allowed: str) -> None:
    """TF32, which "high" allows, has errors of 1e-3."""
    unit_ND = torch.nn.functional.normalize(made(2_000, 50, 64, ties=False)[0])
    exact_NK = (unit_ND.double() @ unit_ND.double().T).topk(10).values
    torch.set_float32_matmul_precision(allowed)
    try:
        found_NK, rows_NK = nearest(unit_ND.cuda(), unit_ND.cuda(), 10)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert found_NK.is_cuda
    assert rows_NK.is_cuda
    assert (found_NK.cpu().double() - exact_NK).abs().max() < 2e-6


def test_neighbours_and_clusters_are_the_cpus_image_by_image() -> None:
    embeddings_ND, labels_N = made(3_000, 500, 64, ties=True)
    rows_Q = torch.arange(200)
    on_gpu = Gallery(embeddings_ND.cuda(), labels_N.cuda()).neighbours(rows_Q.cuda(), 20)
    assert torch.equal(on_gpu.cpu(), Gallery(embeddings_ND, labels_N).neighbours(rows_Q, 20))
    unit_ND = torch.nn.functional.normalize(embeddings_ND)
    assert torch.equal(kmeans(unit_ND.cuda(), 500, seed=1).cpu(), kmeans(unit_ND, 500, seed=1))
