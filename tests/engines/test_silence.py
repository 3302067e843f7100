"""When a worker that says nothing is taken as dead, a trial waits for a machine in vain, and how many trials fit."""

from pathlib import Path

import pytest
import yaml
from support.services import ROOT

from search.config.sections import ResourcesSection
from search.engines.capacity import CONTEXT_BYTES, Node, at_once, growth, roomier, too_tight, trials_on
from search.engines.waiting import AWAKE_S, SILENCE_POLL_S, Patience, Placement, Silences, Workers
from trainables.common.errors import Failure, InvalidInput
from trainables.common.storage import LIMITS
from trainables.training.spec import DeviceMemory


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Driver:
    """Looks every second, as Tune's steps let it."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.silences = Silences(now=self.clock)

    def wait(self, seconds: float) -> set[str]:
        """Who was taken as dead meanwhile."""
        found: set[str] = set()
        for _ in range(round(seconds)):
            self.clock.now += SILENCE_POLL_S
            assert self.silences.is_due
            found |= self.silences.too_long().keys()
        return found

    def until_dead(self, name: str) -> float:
        begin = self.clock.now
        while not self.wait(1):
            assert self.clock.now - begin < 1e6
        assert self.silences.too_long().keys() == {name}
        return self.clock.now - begin


@pytest.fixture
def driver() -> Driver:
    """A driver that watches worker 1."""
    made = Driver()
    made.silences.watch("1", "mpa")
    return made


def test_a_worker_has_a_multiple_of_its_own_slowest_epoch(driver: Driver) -> None:
    for seconds in (100, 300, 200):
        assert not driver.wait(seconds)
        driver.silences.heard("1", [seconds - 20])
    assert driver.until_dead("1") == pytest.approx(10 * 300, abs=2)  # with what it waited for its checkpoint
    assert driver.silences.too_long() == {
        "1": "no report from its worker for 50.0 minutes, treated as dead; its slowest epoch took 300.0 s"
    }


@pytest.mark.parametrize(("epochs_s", "expected"), [([1.0], LIMITS.silence_s), ([400.0, 500.0], 5000)])
def test_short_epochs_have_ten_minutes_and_a_resumed_attempt_keeps_its_times(
    driver: Driver, epochs_s: list[float], expected: float
) -> None:
    driver.wait(1)
    driver.silences.heard("1", epochs_s)  # several are read from a checkpoint
    assert driver.until_dead("1") == pytest.approx(expected, abs=2)


def test_a_first_epoch_has_its_own_bound_and_others_lengthen_it(driver: Driver) -> None:
    assert driver.until_dead("1") == pytest.approx(LIMITS.first_epoch_s, abs=2)
    assert "before its first epoch ended" in driver.silences.too_long()["1"]
    driver.silences.forget("1")
    for name, study in (("2", "mpa"), ("3", "triplet")):
        driver.silences.watch(name, study)
    driver.wait(1000)
    driver.silences.heard("2", [990.0])
    driver.silences.forget("2")
    driver.silences.forget("3")
    driver.silences.watch("4", "mpa")
    assert driver.until_dead("4") == pytest.approx(10 * 1000, abs=2)
    driver.silences.forget("4")
    driver.silences.watch("5", "triplet")  # of which no epoch is known
    assert driver.until_dead("5") == pytest.approx(LIMITS.first_epoch_s, abs=2)


def test_pauses_of_the_driver_do_not_count(driver: Driver) -> None:
    """A database that was waited for, a laptop that slept: what was said meanwhile has not been heard yet."""
    patience = Patience(2, minutes=10, now=(clock := Clock()))
    clock.now += 86_400
    for _ in range(int(600 - AWAKE_S)):
        patience.poll(2)
        clock.now += SILENCE_POLL_S
    clock.now += 2 * SILENCE_POLL_S
    with pytest.raises(Failure, match="2 of 2 workers did not answer within 10 minutes"):
        patience.poll(2)
    driver.wait(10)
    driver.silences.heard("1", [10.0])
    driver.clock.now += 86_400
    assert not driver.silences.too_long()
    assert driver.until_dead("1") == pytest.approx(LIMITS.silence_s - AWAKE_S, abs=2)


def test_workers_that_report_or_finish_are_alive(driver: Driver) -> None:
    driver.silences.watch("done", "mpa")
    driver.silences.forget("done")
    driver.silences.heard("done", [1.0])  # an answer that came late
    for _ in range(5):
        driver.silences.watch("1", "mpa")  # asked for at every look
        assert not driver.wait(LIMITS.silence_s - 10)
        driver.silences.heard("1", [LIMITS.silence_s - 10])


class Cluster:
    """A cluster whose machines come and go, and a search that asks for a GPU a trial."""

    def __init__(self, *nodes: Node, may_come: tuple[Node, ...] = ()) -> None:
        self.clock = Clock()
        self.nodes = list(nodes)
        resources = ResourcesSection(cpus_per_trial=1, gpus_per_trial=1)
        self.ray_runs_here = True
        self.placement = Placement(resources, lambda: self.nodes, may_come, lambda: self.ray_runs_here, now=self.clock)

    def wait(self, seconds: float, *, placed: int = 0, waiting: int = 3) -> None:
        for _ in range(round(seconds)):
            self.placement.poll(placed=placed, waiting=waiting)
            self.clock.now += 1


SMALL: Node = {"CPU": 8}
LARGE: Node = {"CPU": 8, "GPU": 1}


def test_a_hopeless_wait_for_a_machine_ends(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(SMALL, SMALL, {"CPU": 4})
    cluster.wait(LIMITS.machine_said_s)
    assert not caplog.messages
    cluster.wait(LIMITS.machine_s - LIMITS.machine_said_s)
    assert [message.partition(":")[0] for message in caplog.messages] == [
        f"No trial could be scheduled for {half / 2:.1f} minutes" for half in range(1, 80)
    ]
    with pytest.raises(Failure) as raised:
        cluster.wait(2)
    assert str(raised.value) == (
        "No trial could be scheduled for 40.0 minutes: each requests 1 CPUs and 1 GPUs, the cluster has 3 (2 with 8 "
        "CPUs and 0 GPUs, 1 with 4 CPUs and 0 GPUs), and none can be added automatically. Add one (`ray start`), or "
        "lower resources; run the same command again to resume."
    )


def test_machines_that_may_come_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    for cluster, sentence in (
        (Cluster(SMALL, may_come=(LARGE,)), "waits for the cluster to grow"),
        (Cluster(SMALL, LARGE), "machines are busy"),
    ):
        caplog.clear()
        cluster.wait(2 * LIMITS.machine_s)
        assert len(caplog.messages) == 2 * LIMITS.machine_s / LIMITS.machine_said_s - 1
        assert all(sentence in message for message in caplog.messages)


def test_without_local_ray_the_search_ends_when_idle() -> None:
    cluster = Cluster(LARGE)
    cluster.ray_runs_here = False
    cluster.wait(10, placed=1)  # elsewhere
    cluster.wait(10, waiting=0)
    with pytest.raises(
        Failure, match=r"Ray has died on this machine .* run the same command again to resume, .* \(`ray start`\)"
    ):
        cluster.wait(1)


def test_a_machine_that_comes_back_in_time_ends_the_wait(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(SMALL)
    for _ in range(2):
        cluster.wait(LIMITS.machine_s - 10)
        cluster.wait(1, placed=1)
        cluster.wait(1, waiting=0)
    assert "the cluster has 1 (1 with 8 CPUs and 0 GPUs)" in caplog.text
    cluster.nodes.clear()
    with pytest.raises(Failure, match="the cluster has no machine, and none can be added"):
        cluster.wait(LIMITS.machine_s + 2)


# How many trials fit on a cluster's nodes and on a GPU's memory.


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
    for machines, has in (([], "no machine"), ([SMALL, {"CPU": 1, "GPU": 1}], r"2 \(1 with 8 CPUs and 0 GPUs, 1 with")):
        with pytest.raises(InvalidInput, match=f"each requests 2 CPUs and 1 GPUs, the cluster has {has}"):
            at_once(wanted, None, machines)


def test_a_cluster_counts_with_its_maximum_size(tmp_path: Path) -> None:
    bootstrap = tmp_path / "ray_bootstrap_config.yaml"
    assert growth(bootstrap) == []
    bootstrap.write_text((ROOT / "ray_cluster.yaml").read_text())
    wanted = ResourcesSection(cpus_per_trial=1, gpus_per_trial=0.5)
    assert at_once(wanted, None, [{"CPU": 0}], growth(bootstrap)) == 8 * 2
    smaller = {**yaml.safe_load(bootstrap.read_text()), "max_workers": 3}
    bootstrap.write_text(yaml.safe_dump(smaller))
    assert at_once(wanted, None, [{"CPU": 0}], growth(bootstrap)) == 3 * 2


@pytest.mark.parametrize(
    ("peak", "fit", "share"), [(7.4e9, 3, "0.333"), (11.4e9, 2, "0.5"), (1e9, 15, "0.066"), (30e9, 1, "1")]
)
def test_a_share_is_proposed_that_memory_and_cpus_allow(peak: float, fit: int, share: str) -> None:
    """On a machine with two GPUs of 24 GB: a lower one if trials do not fit, a higher one if more would."""
    memory = DeviceMemory(peak=int(peak), total=24_000_000_000)
    assert fit == 1 or fit * (peak + CONTEXT_BYTES) <= memory["total"] < (fit + 1) * (peak + CONTEXT_BYTES)
    tight = too_tight(0.05, memory)
    assert tight
    assert tight.endswith(f"set it to {share}.")
    assert too_tight(float(share), memory) is None
    for cpus, now in ((64.0, 1.0), (4.0, 1.0), (1.0, 1.0), (64.0, float(share))):
        machine, packed, most = {"CPU": cpus, "GPU": 2.0}, int(1 / now + 1e-6), min(fit, int(cpus / 2))
        proposed = roomier(ResourcesSection(gpus_per_trial=now), memory, machine).partition("gpus_per_trial: ")[2]
        assert bool(proposed) == (most > packed)
        assert not proposed or trials_on(machine, {"CPU": 1, "GPU": float(proposed)}) == 2 * most


def test_workers_follow_the_machines_that_are_left(caplog: pytest.LogCaptureFixture) -> None:
    """Two machines for a trial each: one leaves, both are gone, both are back, a third has no use."""
    rooms, reported = [2, 1, 0, 2, 3], list[int]()
    fit = iter(rooms)
    workers = Workers(2, fit.__next__, reported.append)
    seen = [workers.number]
    for _ in rooms[1:]:
        workers.look()
        seen.append(workers.number)
    assert seen == [2, 1, 1, 2, 2]
    assert reported == [1, 2]
    assert caplog.messages == [
        f"The machines of the cluster have room for {fit} of 2 workers now." for fit in (1, 0, 2)
    ]
