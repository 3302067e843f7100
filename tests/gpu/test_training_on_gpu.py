"""Trainings and metrics on a GPU: images, batches, precision and memory.

Shapes: N images, D embedding.
"""

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support import gpu_training
from support.gpu_training import CPU, GPU, spec_of

from trainables.data import AUGMENTATIONS, Frame
from trainables.data.loading import load, prefetched
from trainables.data.store import view as resident
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics import SUPERCLASSES, all_metrics
from trainables.metrics.evaluation import evaluate, kmeans
from trainables.metrics.gallery import Gallery, nearest
from trainables.models import ModelConfig
from trainables.models.embedding import EmbeddingModel, embed
from trainables.training.train import LateValue, Training, train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")

images = gpu_training.images
FRAME = Frame(side=32, short_side=36)
BUSY = 64 if torch.cuda.is_available() and torch.cuda.get_device_name() == "Simulated" else 4096
"""Side of matrices whose products keep a GPU busy; a simulated one computes at once."""


@pytest.fixture(autouse=True)
def nothing_held() -> Iterator[None]:
    resident._resident.clear()
    yield
    resident._resident.clear()


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_batches_are_the_same_wherever_the_images_lie(images: StoreSpec, augmentation: str) -> None:
    store = images.open()
    on_gpu = resident.on_device(store, GPU)
    assert isinstance(on_gpu, resident.ResidentStore)
    batches = {}
    for name, source, device in (("cpu", store, CPU), ("copied", store, GPU), ("resident", on_gpu, GPU)):
        generator = torch.Generator().manual_seed(1)
        view = source.subset(images.class_names)
        batches[name] = load(view, torch.arange(60), augmentation, FRAME, device=device, generator=generator)
    assert torch.equal(batches["copied"], batches["resident"])
    assert (batches["resident"].cpu() - batches["cpu"]).abs().max() < 1e-5


@pytest.mark.parametrize("is_resident", [False, True])
def test_prefetched_batches_are_the_same_bit_for_bit(images: StoreSpec, is_resident: bool) -> None:
    """A batch's memory is reused by the next but one while a long step still runs."""
    store = resident.on_device(images.open(), GPU) if is_resident else images.open()
    view, indices = store.subset(images.class_names), torch.arange(60).repeat(10).split(24)

    def made(with_thread: bool) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(1)

        def make(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (load(view, batch, "crop_flip", FRAME, device=GPU, generator=generator),)

        batches = prefetched(indices, make, GPU) if with_thread else map(make, indices)
        busy = torch.full((BUSY, BUSY), 1 / BUSY, device=GPU)
        kept = []
        for (images_of_batch,) in batches:
            for _ in range(5):
                busy = busy @ busy
            kept.append(images_of_batch * 1)  # queued behind the products
        return kept

    assert all(torch.equal(ahead, plain) for ahead, plain in zip(made(True), made(False), strict=True))


def test_embeddings_stay_on_the_gpu_and_the_tests_are_in_float32(images: StoreSpec) -> None:
    torch.manual_seed(0)
    model, view = EmbeddingModel(ModelConfig(embedding_dim=16)), images.open().subset(images.class_names)
    expected_ND = embed(model, view, FRAME, batch_size=50, device=CPU, precision="float32")
    model = model.to(GPU)
    found = {
        precision: embed(model, view, FRAME, batch_size=50, device=GPU, precision=precision)
        for precision in ("float32", "bfloat16", "auto")
    }
    assert {(embeddings.device.type, embeddings.dtype) for embeddings in found.values()} == {("cuda", torch.float32)}
    scale = expected_ND.abs().max()
    assert (found["float32"].cpu() - expected_ND).abs().max() < 2e-4 * scale, "TF32 errs by 1e-3"
    assert torch.equal(found["auto"], found["bfloat16"]), "bfloat16 is the default on a GPU"
    assert not torch.equal(found["float32"], found["bfloat16"])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_training_learns_and_says_what_memory_it_took(images: StoreSpec, tmp_path: Path, precision: str) -> None:
    metrics, training = ("recall_at_1", "map_at_r", "nmi"), {"precision": precision, "compile": "auto"}
    records = list(train(spec_of(images, tmp_path, metrics=metrics, training=training), GPU))
    assert records[-1]["loss"] < records[0]["loss"]
    for record in records:
        assert set(record["metrics"]) == set(metrics)
        assert 0 < record["memory"]["peak"] < record["memory"]["total"]
        assert record["start"] < record["end"]


def test_an_epoch_waits_for_no_step(images: StoreSpec, tmp_path: Path) -> None:
    """A step never waits for the device; torch raises an error here if it does.

    Some losses wait: those that look up the classes of a batch, or mine it.
    """
    training = Training(spec_of(images, tmp_path, loss="softmax"), GPU)
    training.run_epoch()
    images_B, labels_B = training.load_batch(torch.arange(12), torch.Generator().manual_seed(0))
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        late = LateValue(training.steps.take(images_B, labels_B))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    training.wait_for_checkpoints()
    assert late.read() > 0


def test_a_late_value_is_the_value() -> None:
    busy = torch.full((BUSY, BUSY), 1 / BUSY, device=GPU)
    for _ in range(20):
        busy = busy @ busy
    value = 2.5 + busy.sum() * 0
    late = LateValue(value)
    value += 1  # queued behind the copy
    assert late.read() == 2.5


# Metrics of embeddings equal those on a CPU.


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
    names, superclasses_N = (*all_metrics(), *SUPERCLASSES), labels_N // 5
    expected = evaluate(embeddings_ND, labels_N, names, superclasses_N=superclasses_N)
    for device, labels_on in (("cuda", "cpu"), ("cuda", "cuda"), ("cpu", "cuda")):
        labels, superclasses = labels_N.to(labels_on), superclasses_N.to(labels_on)
        found = evaluate(embeddings_ND.to(device), labels, names, superclasses_N=superclasses)
        assert found == pytest.approx(expected, abs=1e-6, nan_ok=True)


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
