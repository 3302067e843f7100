"""Processes that begin as a copy of this one, which has imported what they need.

They must not train or use a GPU: neither works in a copy of a process that has done so.
"""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

FORK = multiprocessing.get_context("fork")


def forked(work: Callable[..., object], *arguments: Any) -> tuple[ForkProcess, Connection]:
    """Start ``work(connection, *arguments)`` in a copy of this process; return the process and the other end."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    return process, ours


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
