"""``python -m soak``: searches with faults, until the given number of faults is reached.

The seed draws which faults come when; every one stands in ``log.jsonl``. The processes of different runs differ, so a
run is repeated as far as the machine lets it. Ends with 1 where the oracle found a difference.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path

from soak.tools import RUN


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--faults", type=int, default=120, help="how many in all")
    parser.add_argument("--scenario", action="append", help="only this one; may be given again")
    parser.add_argument("--folder", type=Path, help="where searches, services and log.jsonl are kept")
    given = parser.parse_args(arguments)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="holdout-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    ray = Path(tempfile.mkdtemp(prefix="hs-"))  # a short name: Ray makes sockets below it
    os.environ |= {RUN: uuid.uuid4().hex, "RAY_AUTH_MODE": "token", "RAY_TMPDIR": str(ray), "OMP_NUM_THREADS": "1"}
    os.environ |= {"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}  # a minute else, for each driver whose Ray is gone
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # takes everything down as Ctrl-C does
    try:
        from soak.rounds import soak  # after the settings, which Ray reads when it is imported

        return soak(given.seed, given.faults, given.scenario, folder.resolve())
    finally:
        shutil.rmtree(ray, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
