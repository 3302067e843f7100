"""One search with its services, as a user runs it, and the parts of it that faults hit."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.commands import write_search
from support.services import ROOT, TOKEN, MlflowServer, Nodes, Postgres, postgres
from support.small_disk import SmallDisk, small_disk

from benchmarks.slots import SECONDS
from soak.oracle import Left, count_epochs, epochs_of_running
from soak.scenarios import Scenario
from soak.tools import DRIVER, RUN, Process, descendants, end, marked

TRAINS = re.compile(r"^ray::.*(Train|Sleeping)")
RUNS_BYTES, CACHE_BYTES = 96_000_000, 24_000_000
STARTS = 4
OF_RAY = re.compile(r"raylet|gcs_server|ray/_private|ray/dashboard|ray::")


def why_not(scenario: Scenario) -> str | None:
    """Return the missing requirement, as a clause after "it"; None if the scenario can run."""
    root = os.getuid() == 0
    if scenario.postgres and (Postgres.binaries() is None or not root):
        return "needs Debian's package postgresql, and root to start it as its own user"
    if scenario.trains and not root:
        return "mounts file systems, which only root may"
    return None


class Services:
    """Services that the searches of a scenario share, those that it needs."""

    second: Any
    database: Postgres
    tracking: MlflowServer

    def __init__(self, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        self._nodes: Nodes | None = None

    @property
    def nodes(self) -> Nodes:
        assert self._nodes is not None
        return self._nodes

    def start_nodes(self) -> None:
        """Start a Ray cluster with the scenario's number of nodes."""

        def start() -> None:
            self._nodes = Nodes(cpus=1, bare=True)
            if self.scenario.nodes > 1:
                self._add()

        _again_if_late(start)

    def add_second(self) -> None:
        _again_if_late(self._add)

    def _add(self) -> None:
        self.second = self.nodes.add(cpus=1)

    def end_nodes(self) -> None:
        """End the cluster, which may be dead already."""
        if self._nodes is not None:
            with suppress(AssertionError):  # Ray's, that a process which died is still in its parent's list
                self._nodes.shutdown()
            self._nodes = None
        end([process for process in marked(RUN, os.environ[RUN]) if OF_RAY.search(process.title)])


def _again_if_late(start: Callable[[], None]) -> None:
    """Call ``start``, with retries: on a busy machine Ray starts too late."""
    known = {process.pid for process in marked(RUN, os.environ[RUN])}
    for left in reversed(range(STARTS)):
        try:
            start()
            return
        except Exception:  # Ray raises its most general one
            if not left:
                raise
            end([process for process in marked(RUN, os.environ[RUN]) if process.pid not in known])


@contextmanager
def services(scenario: Scenario, folder: Path) -> Iterator[Services]:
    """Yield the services of a scenario, in ``folder``; skip if this machine lacks them."""
    folder.mkdir(parents=True)
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        here = Services(scenario, folder)
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        patch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
        patch.setenv(SECONDS, "0.15")  # of an epoch
        patch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if scenario.postgres:
            here.database = stack.enter_context(postgres(folder, "mlflow"))
            (folder / "mlflow").mkdir()
            # Without passwords, whose hashes are most of what a request costs.
            here.tracking = MlflowServer(folder / "mlflow", "--database", here.database.url("mlflow"))
            stack.callback(here.tracking.stop)
            here.tracking.start()
        if scenario.nodes:
            from search.engines.ray_session import import_ray

            import_ray()
            stack.callback(here.end_nodes)
            here.start_nodes()
        yield here


@dataclass
class World:
    """A search below ``folder``: its driver, its services, and everything observable from outside."""

    scenario: Scenario
    services: Services
    folder: Path
    name: str
    disks: dict[str, SmallDisk] = field(default_factory=dict)
    driver: subprocess.Popen[bytes] | None = None
    codes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        scenario, services = self.scenario, self.services
        self.left = Left(
            folder=self.folder,
            search=self.name,
            losses=(scenario.loss,),
            trials=scenario.trials,
            epochs=scenario.epochs,
            openings=int(scenario.trains),
            tracking=services.tracking.url if scenario.postgres else None,
        )
        self._said = self.folder / "said.txt"
        self.epochs_at_start = 0
        content = scenario.content(self.name, services.folder.parent / "images")
        if scenario.postgres:
            content["tracking"] = {"uri": services.tracking.url}
        self.file = write_search(self.folder / f"{self.name}.yaml", content)

    def start(self) -> None:
        self.epochs_at_start = self.epochs()
        command = [sys.executable, "-m", "holdout", "run", str(self.file), "--runs", str(self.left.runs)]
        with self._said.open("ab") as said:
            self.driver = subprocess.Popen(
                command, stdout=said, stderr=said, env=self.environment, start_new_session=True
            )

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands: the folders of their user, and the cluster."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            DRIVER: self.mark,
        }
        environment.pop("RAY_ADDRESS", None)  # of whoever runs this
        if self.scenario.nodes:
            environment["RAY_ADDRESS"] = self.services.nodes.gcs_address
        return environment

    @property
    def mark(self) -> str:
        """The mark in the environment of its drivers and their children."""
        return f"{os.environ[RUN][:8]}/{self.scenario.name}/{self.name}"

    def said(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self._said.read_text(errors="replace"))

    def epochs(self) -> int:
        return count_epochs(self.left.journal)

    def running(self) -> dict[str, int]:
        return epochs_of_running(self.left.journal)

    def trainers(self) -> list[Process]:
        return [process for process in self.processes() if TRAINS.match(process.title)]

    def processes(self) -> list[Process]:
        """Return the processes of the drivers, or of the nodes that they train on."""
        return marked(RUN, os.environ[RUN]) if self.scenario.nodes else marked(DRIVER, self.mark)

    def postgres_processes(self) -> list[Process]:
        first = self.services.database.pid
        return [Process(first, "postgres"), *descendants(first)]


@contextmanager
def world(scenario: Scenario, services: Services, folder: Path, name: str) -> Iterator[World]:
    """Yield a search of a scenario, called ``name``, in its own folder; its processes end with the context."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        disks = {}
        if scenario.trains:
            disks["runs"] = stack.enter_context(small_disk(folder / "runs", RUNS_BYTES))
            disks["cache"] = stack.enter_context(small_disk(folder / "cache", CACHE_BYTES))
        made = World(scenario, services, folder, name, disks)
        try:
            yield made
        finally:
            if made.driver is not None:
                made.driver.kill()
                made.driver.wait()
            end(marked(DRIVER, made.mark))
