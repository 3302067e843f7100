"""The memory that trainings take on the simulated GPU and give back, and scores and models on either device."""

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.gpu_training import CPU, GPU, spec_of
from support.simulated_gpu import HELD, RESERVED
from support.simulated_gpu.fixtures import trained

import holdout
from search.records.score_files import ScoredModel, Scoring
from search.records.scoring import score
from trainables.data.store import view
from trainables.data.store.store_spec import StoreSpec
from trainables.inference.portable import _network_of
from trainables.metrics import all_metrics
from trainables.models.embedding import autocast
from trainables.training.attempt import Worker
from trainables.training.train import Training

pytestmark = pytest.mark.simulated_gpu


@pytest.fixture(autouse=True)
def nothing_is_held() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def test_memory_does_not_grow_from_epoch_to_epoch(images: StoreSpec, tmp_path: Path) -> None:
    """All epochs prefetch on one stream; memory of another is not reused."""
    training = {"epochs": 3, "warmup_epochs": 0, "augment": "resized_crop_flip"}
    _, second, last = trained(spec_of(images, tmp_path, training=training), GPU).records
    assert last["memory"]["peak"] == pytest.approx(second["memory"]["peak"], rel=0.05)


def test_a_worker_leaves_nothing(images: StoreSpec, tmp_path: Path) -> None:
    before = HELD.total()
    worker = Worker(cpus=1, gpu=True)
    worker.assign(spec_of(images, tmp_path))
    worker.step()
    assert HELD.total() > before + 10_000
    worker.end()
    view._resident.clear()
    assert HELD.total() - before < 1000


def test_the_images_of_another_search_are_removed_before_these_are_judged(images: StoreSpec, gpu_of: Any) -> None:
    """The GPU has room for the images once."""
    store = images.open()
    gpu_of(limit=RESERVED.total() + int(store.bytes / view.SHARE * 1.2))
    first = view.on_device(store, GPU)
    assert isinstance(first, view.ResidentStore)
    del first
    (key,) = view._resident
    view._resident[key[0] / "another", GPU] = view._resident.pop(key)
    assert isinstance(view.on_device(store, GPU), view.ResidentStore)


# Scores, metrics and models equal those on the CPU, and are computed where the task says.


@pytest.fixture
def on_gpu(images: StoreSpec, tmp_path: Path) -> Training:
    return trained(spec_of(images, tmp_path, training={"epochs": 1, "warmup_epochs": 0}), GPU)


def scoring_of(training: Training, *, gpu: bool) -> Scoring:
    spec = training.spec
    return Scoring(
        loss="mpa", source_trial=0, seed=0, fold=None, spec=spec, checkpoint=checkpoint_of(training),
        images=spec.images, metrics=all_metrics(), per_image="mpa.npz", gpu=gpu,
    )  # fmt: skip


def checkpoint_of(training: Training) -> str:
    (path,) = Path(training.spec.directory).rglob("best*.safetensors")
    return str(path)


def test_a_test_is_scored_on_the_device_of_its_task(on_gpu: Training) -> None:
    """A task without a GPU may see all of them: Ray leaves CUDA_VISIBLE_DEVICES alone."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = RESERVED.total()
    (by_cpu,) = score(scoring_of(on_gpu, gpu=False))
    assert torch.cuda.max_memory_reserved() == before
    (by_gpu,) = score(scoring_of(on_gpu, gpu=True))
    assert torch.cuda.max_memory_reserved() > before
    assert isinstance(by_gpu.record, ScoredModel)
    assert isinstance(by_cpu.record, ScoredModel)
    assert by_gpu.record.metrics == pytest.approx(by_cpu.record.metrics, abs=1e-6)
    assert set(by_gpu.record.metrics) == set(all_metrics())


def test_a_model_is_used_on_either_device(on_gpu: Training) -> None:
    ours, theirs = (holdout.load(checkpoint_of(on_gpu), device=device) for device in ("cuda", "cpu"))
    assert ours.device.type == "cuda"
    folder = Path(on_gpu.spec.images.dataset.root)  # type: ignore[attr-defined]
    assert np.abs(ours.embed(folder) - theirs.embed(folder)).max() < 1e-5
    assert ours.weights_sha256 == theirs.weights_sha256
    assert ours.index(folder).query(next(folder.rglob("*.png")), k=2)[0][0].similarity > 0.999
    assert all(tensor.device == CPU for tensor in _network_of(ours).state_dict().values()), "what is exported"


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_auto_is_bfloat16_where_the_gpu_has_it(gpu_of: Any, capability: tuple[int, int], expected: bool) -> None:
    gpu_of(capability=capability)
    for precision, enabled in (("auto", expected), ("bfloat16", True), ("float32", False)):
        with autocast(GPU, precision):
            product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        assert (product.dtype == torch.bfloat16) == enabled
