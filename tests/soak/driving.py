"""A search that is run to its end through planned faults, and what the oracle finds of it then."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.commands import command, without_ended_workers

from soak.faults import FAULTS, START_S, NothingToHitError, Planned
from soak.oracle import record_differences
from soak.tools import DRIVER, Process, end, marked
from soak.world import World

PATIENCE_S = 240.0
"""Seconds without any change after which a search hangs."""
DEATHS = 4
"""Maximum number of drivers that may fail after one fault: services come back one after the other."""
SETTLE_S = 1.0
ON_THEIR_WAY = 4
"""Epochs that may still arrive from dead processes."""
GRACE_S = 20.0
"""Seconds that child processes may outlive their driver."""
AGENTS = re.compile(r"^ray::(DashboardAgent|RuntimeEnvAgent)")
"""Processes of Ray that outlive their driver by a minute where the GCS is dead too."""


class SearchHangsError(Exception):
    """A search without progress."""


class Log:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()

    def write(self, **content: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps({"at_s": round(time.monotonic() - self._began, 1), **content}) + "\n")


class Search:
    """Runs a world's search through planned faults to its end."""

    def __init__(self, world: World, log: Log) -> None:
        self.world = world
        self._log = log
        self.injected: list[tuple[str, tuple[int, ...]]] = []
        """Each fault, with the exit codes of the drivers that failed until the search resumed."""
        self.trouble: list[str] = []

    def run(self, planned: Sequence[Planned]) -> int:
        """Inject the planned faults and run the search to its end; return the number of faults injected."""
        self.world.start()
        done = 0
        try:
            for done, fault in enumerate(planned):
                if not self._waited(fault):
                    return done
                self._inject(fault)
            done = len(planned)
            self._until(None)
        except SearchHangsError:
            self.trouble.append(f"{self.world.name} hangs; it was ended. {self._last_words()}")
        return done

    def differences(self, undisturbed: World | None) -> list[str]:
        """Return the trouble, and every difference between the records of the ended search and the expected ones."""
        world = self.world
        if (code := self._driver.poll()) != 0:
            return [*self.trouble, f"{world.name}: its last driver ended with {code}."]
        said = [*self.trouble]
        said += [f"{process.title[:80]} outlives its driver by {GRACE_S} s." for process in outlived(world)]
        if "is behind" in world.said() or "behind the studies" in world.said():
            said += _synchronised(world)
        said += record_differences(world.left, undisturbed.left if undisturbed else None)
        if "Traceback" in (words := without_ended_workers(world.said())):
            said.append(f"A traceback was shown: …{words[words.index('Traceback') :][:3000]}")
        return said

    def _waited(self, fault: Planned) -> bool:
        """Wait for the fault's moment; return True if the search still runs then."""
        wanted = self.world.epochs() + fault.after_epochs
        self._until(lambda: self.world.epochs() >= wanted)
        is_starting = self.world.epochs() == self.world.epochs_at_start
        after_s = fault.after_s if fault.after_epochs or is_starting else fault.after_s / START_S
        deadline = time.monotonic() + after_s
        self._until(lambda: time.monotonic() >= deadline)
        return self._driver.poll() != 0

    def _inject(self, planned: Planned) -> None:
        fault, world = FAULTS[planned.fault], self.world
        known = len(world.codes)
        try:
            hit = fault.inject(world, planned.choice)
        except NothingToHitError:
            self._log.write(search=world.mark, fault=planned.fault, hit=None)
            return
        try:
            time.sleep(planned.lasts_s)
        finally:
            fault.undo(world)
        self._log.write(search=world.mark, **vars(planned), hit=str(hit))
        time.sleep(SETTLE_S)
        if fault.ends_driver:
            self._until(lambda: len(world.codes) > known)
        running, epochs = world.running(), world.epochs()
        self._until(lambda: self._recovered(running, epochs))
        self.injected.append((planned.fault, tuple(world.codes[known:])))
        self._log.write(search=world.mark, recovered=planned.fault, codes=world.codes[known:])

    def _recovered(self, running: Mapping[str, int], epochs: int) -> bool:
        """Return True if every trial of ``running`` ended or reported an epoch: none dies three times in one.

        In total, more epochs have to arrive than were under way when the fault came.
        """
        now = self.world.running()
        went_on = all(now.get(trial, told + 1) > told for trial, told in running.items())
        return went_on and self.world.epochs() >= epochs + ON_THEIR_WAY

    def _until(self, met: Callable[[], bool] | None) -> None:
        """Wait until ``met`` or the search's end; restart drivers that fail.

        Raises:
            SearchHangsError: nothing changed for :data:`PATIENCE_S`.
        """
        world, deaths = self.world, 0
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
                if left := outlived(world):
                    names = ", ".join(process.title[:80] for process in left)
                    self.trouble.append(f"{len(left)} processes outlive their driver by {GRACE_S} s: {names}.")
                    end(left)
                world.start()
            now = (world.epochs(), len(world.said()))
            if now != seen:
                changed, seen = time.monotonic(), now
            if time.monotonic() - changed > PATIENCE_S:
                raise SearchHangsError
            time.sleep(0.1)

    @property
    def _driver(self) -> "subprocess.Popen[bytes]":
        assert self.world.driver is not None
        return self.world.driver

    def _last_words(self) -> str:
        return " | ".join(self.world.said().splitlines()[-6:])


def outlived(world: World) -> list[Process]:
    """Return child processes and trainers that outlive their driver by :data:`GRACE_S`."""

    def living() -> list[Process]:
        found = (*marked(DRIVER, world.mark), *world.trainers())
        return [process for process in found if not AGENTS.match(process.title)]

    deadline = time.monotonic() + GRACE_S
    while (left := living()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def _synchronised(world: World) -> list[str]:
    """Run the command that the search recommends if MLflow was unreachable at its end; return what it refuses."""
    words = command("sync", world.name, "--runs", world.left.runs)
    done = subprocess.run(words, capture_output=True, env=world.environment, text=True, check=False)
    return [f"`holdout sync` ended with {done.returncode}: {done.stderr.strip()}"] if done.returncode else []
