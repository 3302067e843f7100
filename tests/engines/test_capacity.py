"""How many trials fit on a cluster's nodes, on a GPU's memory, and beside other searches."""

import logging
from pathlib import Path

import pytest
import yaml
from support.services import ROOT

from search.config.sections import ResourcesSection
from search.engines.capacity import CONTEXT_BYTES, at_once, growth, roomier, too_tight, trials_on
from search.engines.waiting import Share
from trainables.errors import InvalidInput
from trainables.spec import DeviceMemory


@pytest.mark.parametrize(
    ("cpus", "gpus", "nodes", "fit"),
    [
        (1, 0, [{"CPU": 2}, {"CPU": 3}], 5),
        (2, 0, [{"CPU": 3}, {"CPU": 3}], 2),  # what is left of two nodes is no node
        (0.1, 0, [{"CPU": 1}], 10),
        (1, 0.5, [{"CPU": 8, "GPU": 2}], 4),
        (1, 0.6, [{"CPU": 8, "GPU": 4}], 4),  # not six: a trial sits on one GPU
        (1, 1, [{"CPU": 0}, {"CPU": 4, "GPU": 1}], 1),
    ],
)
def test_trials_are_counted_node_by_node(cpus: float, gpus: float, nodes: list[dict[str, float]], fit: int) -> None:
    assert at_once(ResourcesSection(cpus_per_trial=cpus, gpus_per_trial=gpus), None, nodes) == fit


def test_a_trial_that_fits_nowhere_is_refused() -> None:
    wanted = ResourcesSection(cpus_per_trial=2, gpus_per_trial=1)
    with pytest.raises(InvalidInput, match="asks for 1 GPUs and no machine of the cluster has more than 0"):
        at_once(wanted, None, [{"CPU": 8}])
    with pytest.raises(InvalidInput, match="has 2 CPUs and 1 GPUs together"):
        at_once(wanted, None, [{"CPU": 8}, {"CPU": 1, "GPU": 1}])


def test_a_cluster_counts_with_its_maximum_size(tmp_path: Path) -> None:
    bootstrap = tmp_path / "ray_bootstrap_config.yaml"
    assert growth(bootstrap) == []
    bootstrap.write_text((ROOT / "ray_cluster.yaml").read_text())
    wanted = ResourcesSection(cpus_per_trial=1, gpus_per_trial=0.5)
    assert at_once(wanted, None, [{"CPU": 0}], growth(bootstrap)) == 8 * 2
    smaller = {**yaml.safe_load(bootstrap.read_text()), "max_workers": 3}
    bootstrap.write_text(yaml.safe_dump(smaller))
    assert at_once(wanted, None, [{"CPU": 0}], growth(bootstrap)) == 3 * 2


@pytest.mark.parametrize(("peak", "fraction"), [(7.4e9, "0.333"), (11.4e9, "0.5"), (3.4e9, "0.166"), (30e9, "1")])
def test_too_small_a_gpu_fraction_suggests_one_that_fits(peak: float, fraction: str) -> None:
    total = 24_000_000_000
    sentence = too_tight(0.1, DeviceMemory(peak=int(peak), total=total))
    assert sentence is not None
    assert sentence.endswith(f"set it to {fraction}.")
    packed = int(1 / float(fraction))
    assert packed == 1 or packed * (peak + CONTEXT_BYTES) <= total < (packed + 1) * (peak + CONTEXT_BYTES)
    assert too_tight(float(fraction), DeviceMemory(peak=int(peak), total=total)) is None


@pytest.mark.parametrize(
    ("peak", "cpus", "now", "most"),
    [(7.4e9, 16, 1, 3), (7.4e9, 16, 0.5, 3), (1e9, 16, 0.25, 8), (1e9, 64, 1, 15), (7.4e9, 16, 0.333, None),
     (11.4e9, 4, 0.5, None), (30e9, 16, 1, None), (1e9, 1, 1, None)],
)  # fmt: skip
def test_a_share_is_proposed_that_memory_and_cpus_allow(peak: float, cpus: int, now: float, most: int | None) -> None:
    """A machine with two GPUs of 24 GB."""
    memory, machine = DeviceMemory(peak=int(peak), total=24_000_000_000), {"CPU": float(cpus), "GPU": 2.0}
    sentence = roomier(ResourcesSection(gpus_per_trial=now), memory, machine)
    if most is None:
        assert sentence == ""
        return
    key, _, share = sentence.rpartition("set ")[2].partition(": ")
    assert key == "resources.gpus_per_trial"
    assert trials_on(machine, {"CPU": 1, "GPU": float(share)}) == 2 * most
    assert too_tight(float(share), memory) is None
    assert roomier(ResourcesSection(gpus_per_trial=float(share)), memory, machine) == ""


@pytest.mark.parametrize(("workers", "drivers", "expected"), [(16, 1, 16), (16, 3, 5), (2, 5, 1), (4, 0, 4)])
def test_every_search_has_the_same_share_and_at_least_one_worker(workers: int, drivers: int, expected: int) -> None:
    share = Share(workers, lambda: drivers)
    assert share.workers == expected
    assert share.is_shared == (drivers > 1)


def test_a_share_follows_the_number_of_drivers(caplog: pytest.LogCaptureFixture) -> None:
    on_cluster = iter([1, 2, 2, 3, 1])
    share = Share(12, lambda: next(on_cluster), poll_s=0.0)
    with caplog.at_level(logging.WARNING):
        assert [share.workers for _ in range(5)] == [12, 6, 6, 4, 12]
    assert caplog.messages == [
        "2 searches share this cluster: 6 of 12 workers each.",
        "3 searches share this cluster: 4 of 12 workers each.",
        "No other search uses this cluster any more: all 12 workers are free.",
    ]
