"""Scores, metrics and models on the simulated GPU equal those on the CPU, and are computed where the task says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.simulated_gpu import RESERVED
from support.simulated_gpu.fixtures import CPU, GPU, spec_of, trained

import holdout
from search.selection.retrieval_file import Scoring
from search.selection.scoring import score
from trainables.data.store.spec import StoreSpec
from trainables.inference.portable import _network_of
from trainables.metrics import all_metrics, evaluate
from trainables.models.embedding import autocast
from trainables.training.train import Training

pytestmark = pytest.mark.simulated_gpu


@pytest.fixture
def on_gpu(images: StoreSpec, tmp_path: Path) -> Training:
    return trained(spec_of(images, tmp_path, training={"epochs": 1, "warmup_epochs": 0}), GPU)


def scoring_of(training: Training, *, gpu: bool) -> Scoring:
    spec = training.spec
    return Scoring(
        loss="mpa", source_trial=0, seed=0, fold=None, spec=spec, checkpoint=checkpoint_of(training),
        images=spec.images, metrics=all_metrics(), gallery=3, per_image="mpa.npz", gpu=gpu,
    )  # fmt: skip


def checkpoint_of(training: Training) -> str:
    (path,) = Path(training.spec.directory).rglob("best*.safetensors")
    return str(path)


def test_a_test_is_scored_on_the_device_of_its_task(on_gpu: Training) -> None:
    """A task without a GPU may see all of them: Ray leaves CUDA_VISIBLE_DEVICES alone."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = RESERVED.total()
    ((by_cpu, _),) = score(scoring_of(on_gpu, gpu=False))
    assert torch.cuda.max_memory_reserved() == before
    ((by_gpu, _),) = score(scoring_of(on_gpu, gpu=True))
    assert torch.cuda.max_memory_reserved() > before
    assert by_gpu["metrics"] == pytest.approx(by_cpu["metrics"], abs=1e-6)
    assert set(by_gpu["metrics"]) == set(all_metrics())


def test_a_model_is_used_on_either_device(on_gpu: Training) -> None:
    ours, theirs = (holdout.load(checkpoint_of(on_gpu), device=device) for device in ("cuda", "cpu"))
    assert ours.device.type == "cuda"
    folder = Path(on_gpu.spec.images.dataset.root)  # type: ignore[attr-defined]
    assert np.abs(ours.embed(folder) - theirs.embed(folder)).max() < 1e-5
    assert ours.weights_sha256 == theirs.weights_sha256
    assert ours.index(folder).query(next(folder.rglob("*.png")), k=2)[0][0].similarity > 0.999
    assert all(tensor.device == CPU for tensor in _network_of(ours).state_dict().values()), "what is exported"


@pytest.mark.slow
def test_metrics_take_embeddings_and_labels_on_either_device() -> None:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(300) % 30
    embeddings_ND = torch.randn(30, 8, generator=generator)[labels_N] + torch.randn(300, 8, generator=generator)
    embeddings_ND[1::10] = embeddings_ND[::10]
    names = (*all_metrics(), "nmi_super", "f1_super")
    found = [
        evaluate(
            embeddings_ND.to(device), labels_N.to(labels_on), names, superclasses_N=(labels_N // 5).to(labels_on),
            queries=200, exclude_singletons=True,
        )
        for device, labels_on in ((CPU, CPU), (GPU, CPU), (GPU, GPU), (CPU, GPU))
    ]  # fmt: skip
    assert all(values == pytest.approx(found[0], abs=1e-6) for values in found)


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_auto_is_bfloat16_where_the_gpu_has_it(gpu_of: Any, capability: tuple[int, int], expected: bool) -> None:
    gpu_of(capability=capability)
    for precision, enabled in (("auto", expected), ("bfloat16", True), ("float32", False)):
        with autocast(GPU, precision):
            product = torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        assert (product.dtype == torch.bfloat16) == enabled
