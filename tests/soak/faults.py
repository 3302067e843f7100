"""The table of faults, and their schedule, drawn from a seed so that a run can be repeated."""

import math
import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

from soak.tools.processes import Process, descendants
from soak.tools.store import HALF, LAGS, REFUSES, FaultyHandler
from soak.world import STARTS, World


class NothingToHitError(Exception):
    """A fault without a target at this moment."""


@dataclass(frozen=True, kw_only=True)
class Fault(ABC):
    """A fault that lasts between the two ``lasts_s`` seconds.

    After one that ``ends_driver`` the command has to be given again, though what trains may go on for a while.
    """

    lasts_s: tuple[float, float] = (0.0, 0.0)
    ends_driver: bool = False

    @abstractmethod
    def inject(self, world: World, choice: float) -> str:
        """Inject the fault into one of its possible targets, by ``choice`` in [0, 1); return the target.

        Raises:
            NothingToHitError: there is nobody.
        """

    @abstractmethod
    def undo(self, world: World) -> None:
        """End the fault."""


@dataclass(frozen=True, kw_only=True)
class Signalled(Fault):
    """A signal to a process; a stopped process is continued afterwards."""

    of: Callable[[World], list[Process]]
    number: int

    def inject(self, world: World, choice: float) -> str:
        """Send the signal to one of the processes."""
        found = self.of(world)
        if not found:
            raise NothingToHitError
        victim = found[int(choice * len(found))]
        victim.send(self.number)
        return f"{victim.pid} {victim.title[:60]}"

    def undo(self, world: World) -> None:
        """Continue stopped processes."""
        if self.number == signal.SIGSTOP:
            for process in self.of(world):
                process.send(signal.SIGCONT)


@dataclass(frozen=True, kw_only=True)
class Done(Fault):
    """A fault of a service, with its repair."""

    do: Callable[[World], Any]
    undone: Callable[[World], Any]

    def inject(self, world: World, choice: float) -> str:
        """Inject the fault."""
        self.do(world)
        return ""

    def undo(self, world: World) -> None:
        """Repair the service."""
        self.undone(world)


def _driver(world: World) -> list[Process]:
    return [Process(world.driver.pid, "driver")] if world.driver and world.driver.poll() is None else []


def _node_processes(node: Any) -> list[Process]:
    """Return all processes of a node, including its trainers."""
    own = [info.process.pid for infos in node.all_processes.values() for info in infos]
    return [found for pid in own for found in (Process(pid, "ray"), *descendants(pid))]


def _send(processes: Callable[[World], list[Process]], number: int) -> Callable[[World], None]:
    def send(world: World) -> None:
        for process in processes(world):
            process.send(number)

    return send


def _second(world: World) -> list[Process]:
    return _node_processes(world.services.second)


def _kill_second(world: World) -> None:
    assert world.services.nodes is not None
    world.services.nodes.kill(world.services.second)


def _add_second(world: World) -> None:
    world.services.add_second()


def _kill_head(world: World) -> None:
    """Kill the node with the GCS; the user starts another cluster."""
    assert world.services.nodes is not None
    for process in _node_processes(world.services.nodes.head):
        process.send(signal.SIGKILL)


def _new_cluster(world: World) -> None:
    world.services.end_nodes()
    world.services.start_nodes(world.scenario)


def _pull(world: World) -> None:
    assert world.services.island is not None
    world.services.island.cut()


def _plug(world: World) -> None:
    """Let the node join again if the cluster declared it dead."""
    assert world.services.island is not None
    assert world.services.nodes is not None
    world.services.island.fix()
    world.services.island.join(world.services.nodes.gcs_address)


def _tracking(number: int) -> Callable[[World], None]:
    def send(world: World) -> None:
        assert world.services.tracking is not None
        world.services.tracking.send(number)

    return send


def _kill_tracking(world: World) -> None:
    assert world.services.tracking is not None
    world.services.tracking.stop()


def _start_tracking(world: World) -> None:
    assert world.services.tracking is not None
    world.services.tracking.start()


def _stop_database(world: World) -> None:
    assert world.services.database is not None
    world.services.database.stop()


def _kill_database(world: World) -> None:
    """Kill the server as a power cut would: committed rows are recovered at the next start."""
    assert world.services.database is not None
    os.kill(world.services.database.pid, signal.SIGKILL)


def _start_database(world: World) -> None:
    """Start the server, with retries while remains of the last process block it."""
    assert world.services.database is not None
    for left in reversed(range(STARTS)):
        try:
            world.services.database.start()
            return
        except CalledProcessError:
            if not left:
                raise
            time.sleep(1)


def _store(fault: str | None) -> Callable[[World], None]:
    def set_fault(_: World) -> None:
        FaultyHandler.fault = fault

    return set_fault


def _raylet(world: World) -> list[Process]:
    return world.named("raylet")


def _gcs(world: World) -> list[Process]:
    return world.named("gcs_server")


FAULTS: Mapping[str, Fault] = {
    "driver killed": Signalled(of=_driver, number=signal.SIGKILL),
    "driver ended": Signalled(of=_driver, number=signal.SIGTERM),
    "driver stopped": Signalled(of=_driver, number=signal.SIGSTOP, lasts_s=(1, 6)),
    "trainer killed": Signalled(of=World.trainers, number=signal.SIGKILL),
    "trainer ended": Signalled(of=World.trainers, number=signal.SIGTERM),
    "trainer stopped": Signalled(of=World.trainers, number=signal.SIGSTOP, lasts_s=(1, 6)),
    "raylet killed": Signalled(of=_raylet, number=signal.SIGKILL, ends_driver=True),
    "raylet stopped": Signalled(of=_raylet, number=signal.SIGSTOP, lasts_s=(1, 6)),
    "GCS killed": Signalled(of=_gcs, number=signal.SIGKILL, ends_driver=True),
    "GCS stopped": Signalled(of=_gcs, number=signal.SIGSTOP, lasts_s=(1, 6)),
    "node killed": Done(do=_kill_second, undone=_add_second, lasts_s=(0, 3)),
    "node stopped": Done(do=_send(_second, signal.SIGSTOP), undone=_send(_second, signal.SIGCONT), lasts_s=(1, 6)),
    "head killed": Done(do=_kill_head, undone=_new_cluster, lasts_s=(1, 3), ends_driver=True),
    "cable pulled": Done(do=_pull, undone=_plug, lasts_s=(1, 4)),
    "cable long pulled": Done(do=_pull, undone=_plug, lasts_s=(13, 15)),  # the node is dead to the cluster
    "MLflow killed": Done(do=_kill_tracking, undone=_start_tracking, lasts_s=(1, 8)),
    "MLflow stopped": Done(do=_tracking(signal.SIGSTOP), undone=_tracking(signal.SIGCONT), lasts_s=(1, 8)),
    "PostgreSQL restarted": Done(do=_stop_database, undone=_start_database, lasts_s=(0, 6)),
    "PostgreSQL killed": Done(do=_kill_database, undone=_start_database, lasts_s=(0.5, 6)),
    "PostgreSQL stopped": Done(
        do=_send(World.postgres_processes, signal.SIGSTOP),
        undone=_send(World.postgres_processes, signal.SIGCONT),
        lasts_s=(1, 6),
    ),
    "runs full": Done(
        do=lambda world: world.disks["runs"].fill(), undone=lambda world: world.disks["runs"].clear(), lasts_s=(1, 6)
    ),
    "cache full": Done(
        do=lambda world: world.disks["cache"].fill(), undone=lambda world: world.disks["cache"].clear(), lasts_s=(1, 6)
    ),
    "store refuses": Done(do=_store(REFUSES), undone=_store(None), lasts_s=(1, 6)),
    "store lags": Done(do=_store(LAGS), undone=_store(None), lasts_s=(2, 8)),
    "store gives half": Done(do=_store(HALF), undone=_store(None), lasts_s=(1, 6)),
    "clock ahead": Done(
        do=lambda world: world.clock.jump(86_400), undone=lambda world: world.clock.right(), lasts_s=(2, 6)
    ),
    "clock back": Done(
        do=lambda world: world.clock.jump(-7200), undone=lambda world: world.clock.right(), lasts_s=(2, 6)
    ),
}

# Their schedule.

AT_START = 0.3
"""The share of faults during the start of a driver or its trainers, instead of between epochs."""
START_S = 12.0
"""Maximum delay of these faults; a twelfth of it once epochs are reported."""
EPOCHS = (1, 6)


@dataclass(frozen=True, kw_only=True)
class Planned:
    """One fault: its delay in further epochs (0: none) and seconds, its duration and the choice of its target."""

    fault: str
    after_epochs: int
    after_s: float
    lasts_s: float
    choice: float


def schedule(seed: int, scenario: str, faults: Sequence[str], count: int) -> list[Planned]:
    """Return ``count`` faults in random order, with every kind of ``faults`` equally often."""
    drawn = random.Random(f"{seed}/{scenario}")
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += drawn.sample(faults, len(faults))
    return [_planned(drawn, kind) for kind in kinds[:count]]


def _planned(drawn: random.Random, kind: str) -> Planned:
    at_start = drawn.random() < AT_START
    return Planned(
        fault=kind,
        after_epochs=0 if at_start else drawn.randint(*EPOCHS),
        after_s=round(drawn.uniform(0, START_S if at_start else 0.5), 3),
        lasts_s=round(drawn.uniform(*FAULTS[kind].lasts_s), 3),
        choice=math.floor(1000 * drawn.random()) / 1000,
    )
