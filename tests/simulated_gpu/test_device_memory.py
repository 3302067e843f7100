"""The memory that trainings take on the simulated GPU, and give back."""

import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.simulated_gpu import HELD, RESERVED
from support.simulated_gpu.fixtures import GPU, spec_of, trained

from search.config.sections import ResourcesSection
from search.engines.capacity import roomier
from trainables.data.loading import prefetched
from trainables.data.store import view
from trainables.data.store.spec import StoreSpec
from trainables.models import ModelConfig
from trainables.spec import DeviceMemory
from trainables.training import cost
from trainables.training.attempt import Worker

pytestmark = pytest.mark.simulated_gpu

FOUR_CPUS = {"CPU": 4.0, "GPU": 1.0}


@pytest.fixture(autouse=True)
def nothing_is_held() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def test_memory_does_not_grow_from_epoch_to_epoch(images: StoreSpec, tmp_path: Path) -> None:
    """All epochs prefetch on one stream; memory of another is not reused."""
    training = {"epochs": 4, "warmup_epochs": 0, "augment": "resized_crop_flip"}
    _, second, *_, last = trained(spec_of(images, tmp_path, training=training), GPU).records
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


@pytest.mark.slow
def test_the_cost_of_a_training_excludes_the_one_before(images: StoreSpec, tmp_path: Path) -> None:
    spec = spec_of(images, tmp_path, validation_classes=(), model=ModelConfig(backbone="resnet18", embedding_dim=8))
    counts = cost.ImageCounts(train=(10,) * 4, validation=(10,) * 2, gallery=5)
    specs = [replace(spec, directory=str(tmp_path / str(number))) for number in range(2)]
    first, second = cost.measured_costs(specs, counts, threads=1, gpu=True, seconds=0.0)
    assert first.device_memory is not None
    assert 0 < first.memory < first.device_memory
    assert second.memory == pytest.approx(first.memory, rel=0.1)
    memory = DeviceMemory(peak=first.memory, total=first.device_memory)
    assert "set resources.gpus_per_trial: 0.25" in roomier(ResourcesSection(gpus_per_trial=1), memory, FOUR_CPUS)


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


def test_images_are_held_for_each_device(images: StoreSpec) -> None:
    store = images.open()
    first = view.on_device(store, GPU)
    assert view.on_device(store, GPU) is first
    assert view.on_device(store, torch.device("cuda", 0)) is not first


def test_a_prefetching_thread_chooses_its_device_first(gpu_of: Any) -> None:
    """A thread begins with device 0, where pinned memory would create a context."""
    gpu_of(devices=2)
    seen = []

    def make(batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        seen.append((torch.cuda.current_device(), threading.current_thread() is threading.main_thread()))
        return ()

    list(prefetched(torch.arange(2).split(1), make, torch.device("cuda", 1)))
    assert seen == [(1, False), (1, False)]
    assert torch.cuda.current_device() == 0
