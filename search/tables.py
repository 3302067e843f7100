"""Tables of the engines, samplers and pruners that a search file can name, read without importing any of them.

:mod:`search.engines.base`, :mod:`search.study.sampler` and :mod:`search.study.pruners` say what each of them is.
"""

import os
import re
import sys
from pathlib import Path
from typing import Any

from trainables.common.errors import Mistake
from trainables.common.part_tables import PartRow, PartTable

AUTO = "auto"

ENGINES: PartTable[Any, PartRow] = PartTable(
    "engine",
    {
        "ray": PartRow(path="search.engines.ray_engine:RayEngine"),
        "local": PartRow(path="search.engines.local:Local"),
        "in_process": PartRow(path="search.engines.base:InProcess"),
    },
    base="search.engines.base:Engine",
)

SAMPLERS: PartTable[Any, PartRow] = PartTable(
    "sampler",
    {
        "tpe": PartRow(path="search.study.samplers:Tpe"),
        "random": PartRow(path="search.study.samplers:Random"),
        "qmc": PartRow(path="search.study.samplers:Qmc"),
        "grid": PartRow(path="search.study.samplers:Grid"),
        "coordinate": PartRow(path="search.study.samplers:Coordinate"),
        "gp": PartRow(path="search.study.samplers:GaussianProcess"),
        "cmaes": PartRow(path="search.study.samplers:CmaEs"),
    },
)

PRUNERS: PartTable[Any, PartRow] = PartTable(
    "pruner",
    {
        "asha": PartRow(path="search.study.pruners:SuccessiveHalving"),
        "hyperband": PartRow(path="search.study.pruners:Hyperband"),
        "none": PartRow(path="search.study.pruners:Pruner"),
    },
)

DEVICES = Path("/dev")

_SHELL = re.compile(r"[\s\"'\\$&();<>`|*?\[{]", re.ASCII)
"""Characters of a path that a shell would not take as they are."""

_LONGEST_FOLDER = 107 - len("/ray/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store")
"""Bytes of a folder in which Ray can make sockets, whose paths have 107 at most."""


def engine_name(engine: str, gpus_per_trial: float, devices: Path = DEVICES) -> str:
    """Resolve ``resources.engine``.

    ``auto`` is ``local`` where one machine without a GPU is all there is: no ``RAY_ADDRESS``, no NVIDIA device, and
    none asked for. Everywhere else it is ``ray``. Both train the same numbers and retry the same failures
    (``tests/engines/``); ``local`` reports its first epoch some ten seconds earlier.
    """
    if engine != AUTO:
        return engine
    if os.environ.get("RAY_ADDRESS") or gpus_per_trial or any(devices.glob("nvidia[0-9]*")):
        return "ray"
    return "local"


def ray_address() -> str | None:
    """Return the address of the cluster that this process is connected to, else ``RAY_ADDRESS``."""
    ray = sys.modules.get("ray")
    if getattr(ray, "is_initialized", bool)():  # another thread may be importing it
        return str(ray.get_runtime_context().gcs_address)  # type: ignore[union-attr]
    return os.environ.get("RAY_ADDRESS")


def ray_mistakes(python: str | None = None) -> list[Mistake]:
    """Return a mistake if Ray cannot start its workers with ``python``, this one unless another is given.

    Ray writes this path into a shell command without quotes (``ray._private.runtime_env.context``), and waits without
    end for a worker that does not start. A Ray of this machine also makes sockets in its folder of temporary files,
    whose names Linux limits. Through Ray Client, Ray Tune has no node of the cluster to work from.
    """
    python = python or sys.executable
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    found: dict[str, str] = {}
    if character := _SHELL.search(python):
        problem = f"Ray cannot start workers with {python}, because this path contains {character[0]!r}"
        found[problem] = "make the virtual environment in a folder without it"
    if (client := sys.modules.get("ray.util.client")) and client.ray.is_connected():
        found["This process uses Ray through Ray Client (ray://)"] = "call ray.shutdown() and then `holdout submit`"
    if not ray_address() and len(os.fsencode(folder)) > _LONGEST_FOLDER:
        problem = f"Ray cannot make its sockets below {folder}, because this path has more than {_LONGEST_FOLDER} bytes"
        found[problem] = "set RAY_TMPDIR to a shorter one, such as /tmp"
    keys = ("resources.engine",)
    return [Mistake("", problem, f"{fix}, or set resources.engine to local", keys) for problem, fix in found.items()]
