"""The table of faults, and their schedule, drawn from a seed so that a run can be repeated."""

import math
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from soak.tools import Process, descendants
from soak.world import STARTS, World


class NothingToHitError(Exception):
    """A fault without a target at this moment."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault that lasts between the two ``lasts_s`` seconds, with its repair.

    ``inject`` hits one of its possible targets by a choice in [0, 1), or raises :class:`NothingToHitError`.
    After one that ``ends_driver`` the command has to be given again, though what trains may go on for a while.
    """

    inject: Callable[[World, float], object]
    undo: Callable[[World], object]
    lasts_s: tuple[float, float] = (0.0, 0.0)
    ends_driver: bool = False


Processes = Callable[[World], list[Process]]


def _signalled(
    of: Processes, number: int, lasts_s: tuple[float, float] = (0, 0), *, ends_driver: bool = False
) -> Fault:
    """Return a signal to one process; a stopped process is continued afterwards."""

    def inject(world: World, choice: float) -> str:
        found = of(world)
        if not found:
            raise NothingToHitError
        victim = found[int(choice * len(found))]
        victim.send(number)
        return f"{victim.pid} {victim.title[:60]}"

    def undo(world: World) -> None:
        if number == signal.SIGSTOP:
            _send(of, signal.SIGCONT)(world)

    return Fault(inject=inject, undo=undo, lasts_s=lasts_s, ends_driver=ends_driver)


def _of_service(
    do: Callable[[World], object],
    undo: Callable[[World], object],
    lasts_s: tuple[float, float],
    *,
    ends_driver: bool = False,
) -> Fault:
    return Fault(inject=lambda world, _: do(world), undo=undo, lasts_s=lasts_s, ends_driver=ends_driver)


def _send(processes: Processes, number: int) -> Callable[[World], None]:
    def send(world: World) -> None:
        for process in processes(world):
            process.send(number)

    return send


def _stopped(processes: Processes) -> Fault:
    """Return a fault in which all ``processes`` stop for a while."""
    return _of_service(_send(processes, signal.SIGSTOP), _send(processes, signal.SIGCONT), (1, 6))


def _driver(world: World) -> list[Process]:
    return [Process(world.driver.pid, "driver")] if world.driver and world.driver.poll() is None else []


def _program(name: str) -> Processes:
    """Return the living processes of one of Ray's programs."""
    return lambda world: [found for found in world.processes() if Path(found.title.split(" ")[0]).name == name]


def _of_node(node: Any) -> list[Process]:
    """Return all processes of a node, including its trainers."""
    own = [info.process.pid for infos in node.all_processes.values() for info in infos]
    return [found for pid in own for found in (Process(pid, "ray"), *descendants(pid))]


def _start_database(world: World) -> None:
    """Start the server, with retries while remains of the last process block it."""
    for left in reversed(range(STARTS)):
        try:
            world.services.database.start()
            return
        except CalledProcessError:
            if not left:
                raise
            time.sleep(1)


def _full(disk: str) -> Fault:
    return _of_service(lambda world: world.disks[disk].fill(), lambda world: world.disks[disk].clear(), (1, 6))


FAULTS: Mapping[str, Fault] = {
    "driver killed": _signalled(_driver, signal.SIGKILL),
    "driver ended": _signalled(_driver, signal.SIGTERM),
    "driver stopped": _signalled(_driver, signal.SIGSTOP, (1, 6)),
    "trainer killed": _signalled(World.trainers, signal.SIGKILL),
    "trainer ended": _signalled(World.trainers, signal.SIGTERM),
    "trainer stopped": _signalled(World.trainers, signal.SIGSTOP, (1, 6)),
    "raylet killed": _signalled(_program("raylet"), signal.SIGKILL, ends_driver=True),
    "raylet stopped": _signalled(_program("raylet"), signal.SIGSTOP, (1, 6)),
    "GCS killed": _signalled(_program("gcs_server"), signal.SIGKILL, ends_driver=True),
    "GCS stopped": _signalled(_program("gcs_server"), signal.SIGSTOP, (1, 6)),
    "node killed": _of_service(
        lambda world: world.services.nodes.kill(world.services.second),
        lambda world: world.services.add_second(),
        (0, 3),
    ),
    "node stopped": _stopped(lambda world: _of_node(world.services.second)),
    "head killed": _of_service(  # with the GCS; the user starts another cluster
        _send(lambda world: _of_node(world.services.nodes.head), signal.SIGKILL),
        lambda world: [world.services.end_nodes(), world.services.start_nodes()],
        (1, 3),
        ends_driver=True,
    ),
    "MLflow killed": _of_service(
        lambda world: world.services.tracking.stop(), lambda world: world.services.tracking.start(), (1, 8)
    ),
    "MLflow stopped": _of_service(
        lambda world: world.services.tracking.send(signal.SIGSTOP),
        lambda world: world.services.tracking.send(signal.SIGCONT),
        (1, 8),
    ),
    "PostgreSQL restarted": _of_service(lambda world: world.services.database.stop(), _start_database, (0, 6)),
    "PostgreSQL killed": _of_service(  # as by a power cut: committed rows are recovered at the next start
        lambda world: os.kill(world.services.database.pid, signal.SIGKILL), _start_database, (0.5, 6)
    ),
    "PostgreSQL stopped": _stopped(World.postgres_processes),
    "runs full": _full("runs"),
    "cache full": _full("cache"),
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
    planned = []
    for kind in kinds[:count]:
        at_start = drawn.random() < AT_START
        planned.append(
            Planned(
                fault=kind,
                after_epochs=0 if at_start else drawn.randint(*EPOCHS),
                after_s=round(drawn.uniform(0, START_S if at_start else 0.5), 3),
                lasts_s=round(drawn.uniform(*FAULTS[kind].lasts_s), 3),
                choice=math.floor(1000 * drawn.random()) / 1000,
            )
        )
    return planned
