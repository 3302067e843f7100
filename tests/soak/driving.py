"""One search, driven through its faults to its end."""

import dataclasses
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soak.faults import FAULTS, NothingToHitError
from soak.schedule import START_S, Planned
from soak.tools.processes import DRIVER, Process, marked, now_s
from soak.world import World

PATIENCE_S = 240.0
"""For how long nothing may happen."""
DEATHS = 4
"""How often a driver may end by itself after one fault: services come back one after the other."""
SETTLE_S = 1.0
ON_THEIR_WAY = 4
"""Epochs that may still be told by processes that are dead."""
GRACE_S = 20.0
"""For what a driver started to end after it."""
AGENTS = re.compile(r"^ray::(DashboardAgent|RuntimeEnvAgent)")
AGENTS_S = 90.0
"""For those of Ray's processes that tell its GCS of the raylet's death: where that is dead too, they try for a minute
(61.5 s in 4 of 4 trials with Ray 2.60, whatever Ray's own bounds are set to)."""


@dataclass(frozen=True, kw_only=True)
class Injected:
    """What came of one fault. ``codes`` are those with which drivers ended until the search went on."""

    scenario: str
    fault: str
    hit: str
    codes: tuple[int, ...]
    seconds: float


class SearchHangsError(Exception):
    """Nothing happens any more."""


class Log:
    """What was done and found, one JSON line each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()

    def write(self, **content: Any) -> None:
        """Add a line."""
        with self._file.open("a") as file:
            file.write(json.dumps({"at_s": round(time.monotonic() - self._began, 1), **content}) + "\n")


class Search:
    """Drives a world's search through planned faults to its end."""

    def __init__(self, world: World, log: Log) -> None:
        self._world = world
        self._log = log
        self.injected: list[Injected] = []
        self.trouble: list[str] = []

    def run(self, planned: Sequence[Planned]) -> int:
        """Inject what is planned until the search ends, and see it to its end; how many faults there were."""
        self._world.start()
        done = 0
        try:
            for done, fault in enumerate(planned):
                if not self._waited(fault):
                    return done
                self._inject(fault)
            done = len(planned)
            self._until(None)
        except SearchHangsError:
            self.trouble.append(f"{self._world.name} hangs; it was ended. {self._last_words()}")
        return done

    def _waited(self, fault: Planned) -> bool:
        """Wait for the fault's moment; whether the search still runs then."""
        wanted = self._world.epochs() + fault.after_epochs
        self._until(lambda: self._world.epochs() >= wanted)
        is_starting = self._world.epochs() == self._world.epochs_at_start
        after_s = fault.after_s if fault.after_epochs or is_starting else fault.after_s / START_S
        deadline = time.monotonic() + after_s
        self._until(lambda: time.monotonic() >= deadline)
        return self._driver.poll() != 0

    def _inject(self, planned: Planned) -> None:
        fault, world = FAULTS[planned.fault], self._world
        known, began = len(world.codes), time.monotonic()
        try:
            hit = fault.inject(world, planned.choice)
        except NothingToHitError:
            self._log.write(search=world.mark, fault=planned.fault, hit=None)
            return
        try:
            time.sleep(planned.lasts_s)
        finally:
            fault.undo(world)
        self._log.write(search=world.mark, **dataclasses.asdict(planned), hit=hit)
        time.sleep(SETTLE_S)
        if fault.ends_driver:
            self._until(lambda: len(world.codes) > known)
        running, epochs = world.running(), world.epochs()
        self._until(lambda: self._recovered(running, epochs))
        injected = Injected(
            scenario=world.scenario.name,
            fault=planned.fault,
            hit=hit,
            codes=tuple(world.codes[known:]),
            seconds=time.monotonic() - began,
        )
        self.injected.append(injected)
        self._log.write(search=world.mark, recovered=dataclasses.asdict(injected))

    def _recovered(self, running: Mapping[tuple[str, int], int], epochs: int) -> bool:
        """Whether every trial that ran then has ended or told an epoch more: so none dies three times in one.

        More than what was on its way when the fault came has to be told in all.
        """
        now = self._world.running()
        went_on = all(now.get(trial, told + 1) > told for trial, told in running.items())
        return went_on and self._world.epochs() >= epochs + ON_THEIR_WAY

    def _until(self, met: Callable[[], bool] | None) -> None:
        """Wait until ``met`` or the search's end; a driver that ended by itself is started again.

        Where only the end is waited for (None) the studies are not read: while somebody reads them, a driver that ends
        cannot make one file of them again.

        Raises:
            SearchHangsError: nothing changes for long.
        """
        world, deaths = self._world, 0
        changed, seen = time.monotonic(), (-1, 0)
        while met is None or not met():
            code = self._driver.poll()
            if code == 0:
                return
            if code is not None:
                world.codes.append(code)
                deaths += 1
                self._log.write(search=world.mark, driver_ended=code, said=self._last_words())
                if deaths > DEATHS:
                    raise SearchHangsError
                self._end_with_driver()
                world.start()
            now = (world.epochs() if met else 0, len(world.said()))
            if now != seen:
                changed, seen = time.monotonic(), now
            if time.monotonic() - changed > PATIENCE_S:
                self._log.write(search=world.mark, hangs=self._stacks())
                raise SearchHangsError
            time.sleep(0.1)

    def _end_with_driver(self) -> None:
        """Nothing that a driver started outlives it for long."""
        self._world.ends_s.append(now_s())
        if left := outlived(self._world):
            names = ", ".join(process.title[:80] for process in left)
            self.trouble.append(f"{len(left)} processes outlive their driver by {GRACE_S} s: {names}.")
            for process in left:
                process.send(signal.SIGKILL)

    @property
    def _driver(self) -> "subprocess.Popen[bytes]":
        assert self._world.driver is not None
        return self._world.driver

    def _last_words(self) -> str:
        return " | ".join(self._world.said().splitlines()[-6:])

    def _stacks(self) -> str:
        """Where the driver stands, of a search that hangs."""
        done = subprocess.run(
            ["py-spy", "dump", "--pid", str(self._driver.pid)], capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr


def outlived(world: World) -> list[Process]:
    """What a driver started, and what trains for it, a while after its end."""
    deadline = time.monotonic() + GRACE_S
    while (left := _living(world)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _living(world: World) -> list[Process]:
    """What should have ended with a driver."""
    found = [*marked(DRIVER, world.mark), *world.trainers()]
    return [process for process in found if not (AGENTS.match(process.title) and _tells(world, process))]


def _tells(world: World, agent: Process) -> bool:
    """Whether the driver that started an agent, and with it the agent's GCS, was ended not long ago."""
    started = agent.started_s
    ended = next((end for end in world.ends_s if end > started), None)
    return ended is not None and now_s() - ended < AGENTS_S
