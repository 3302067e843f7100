"""``python -m soak``: searches with faults, until the given number of faults is reached.

The seed draws which faults come when; every one stands in ``log.jsonl``. The processes of different runs differ, so a
run is repeated as far as the machine lets it. Ends with 1 where the oracle found a difference.
"""

import argparse
import math
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from soak.tools.processes import RUN


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=120, help="how many in all")
    parser.add_argument("--scenario", action="append", help="only this one; may be given again")
    parser.add_argument("--fault", action="append", help="only this kind; may be given again")
    parser.add_argument("--folder", type=Path, help="where searches, services and log.jsonl are kept")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdout-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    ray = Path(tempfile.mkdtemp(prefix="hs-"))  # a short name: Ray makes sockets below it
    os.environ |= {RUN: uuid.uuid4().hex, "RAY_AUTH_MODE": "token", "RAY_TMPDIR": str(ray), "OMP_NUM_THREADS": "1"}
    os.environ |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}  # a minute else, for each driver whose Ray is gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # takes everything down as Ctrl-C does
    try:
        return soak(given.seed, given.faults, given.scenario, given.fault, folder.resolve(), Console(width=120))
    finally:
        shutil.rmtree(ray, ignore_errors=True)


def soak(
    seed: int, faults: int, names: Sequence[str] | None, kinds: Sequence[str] | None, folder: Path, console: Console
) -> int:
    """Run in ``folder``, all scenarios and kinds of faults unless some are named; return the exit code."""
    from soak.driving import Injected, Log
    from soak.rounds import rounds, show
    from soak.scenarios import SCENARIOS
    from soak.world import why_not

    scenarios = [SCENARIOS[name] for name in names or SCENARIOS]
    if kinds:
        possible = [replace(each, faults=tuple(kind for kind in each.faults if kind in kinds)) for each in scenarios]
        scenarios = [each for each in possible if each.faults]
    for scenario in list(scenarios):
        if reason := why_not(scenario):
            console.print(f"{scenario.name} is skipped: it {reason}.")
            scenarios.remove(scenario)
    log = Log(folder / "log.jsonl")
    log.write(seed=seed, faults=faults, scenarios=[scenario.name for scenario in scenarios])
    console.print(f"Seed {seed}, {faults} faults; {folder}", highlight=False, soft_wrap=True)
    injected: list[Injected] = []
    found: dict[str, Sequence[str]] = {}
    began = time.monotonic()
    for number, scenario in enumerate(scenarios):
        share = math.ceil((faults - len(injected)) / (len(scenarios) - number))
        of_scenario, differences = rounds(scenario, seed, share, folder / scenario.name, log, console)
        injected += of_scenario
        found |= differences
    show(injected, found, console)
    console.print(f"{time.monotonic() - began:.0f} s.")
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
