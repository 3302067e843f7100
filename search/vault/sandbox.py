"""A child process for work on what a stranger sent: without network, without the vault's files, with limits.

It is a fork, so libraries are imported once. The limits are Linux's: user and network namespaces (unshare), Landlock
rules for files, and resource limits.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainables.common.errors import InvalidInput

if TYPE_CHECKING:
    from search.vault.held import Policy

Outcome = tuple[dict[str, Any], bytes]
"""What the work returns: JSON types, and the content of a file."""

NEW_USER, NEW_NETWORK, NO_NEW_PRIVILEGES, DIE_WITH_PARENT = 0x10000000, 0x40000000, 38, 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ALL_ACCESS = (1 << 13) - 1
"""The rights of Landlock's first version."""
READ = 1 << 0 | 1 << 2 | 1 << 3
"""To execute and read files, and to list folders."""

READABLE = (
    *("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/opt", sys.prefix, sys.base_prefix),
    str(Path(np.__file__).parents[1]),  # of a user's own installation
    *(str(Path(__file__).parents[2] / package) for package in ("search", "spaces", "trainables")),
)
"""Where Python and its libraries lie, and this package."""

MOST_ANSWERED = 1 << 30
TOO_LARGE = "A model takes more memory than the vault allows; make it smaller."


def isolated(work: Callable[[], Outcome], policy: "Policy") -> tuple[Outcome, list[str]]:
    """Run ``work``, which needs no file but Python's, in a child process within the limits of ``policy``.

    Memory is what it takes above this process; on a GPU, whose driver maps all, it is not limited. Return what it
    returns, and what isolated it ("network", "files"); raise :class:`InvalidInput` if it does, or exceeds a limit.
    """
    ours, theirs = Pipe(duplex=False)
    child = get_context("fork").Process(target=_run, args=(work, theirs, policy), daemon=True)
    child.start()
    theirs.close()
    try:
        if not ours.poll(policy.seconds):
            raise InvalidInput(
                f"A model takes more than {policy.seconds:g} s, the limit of the vault for one; make it smaller."
            )
        head, content = json.loads(ours.recv_bytes(MOST_ANSWERED)), ours.recv_bytes(MOST_ANSWERED)
    except (EOFError, OSError) as error:
        raise InvalidInput(
            f"A model ended its process: it takes more memory than the vault allows ({policy.memory_gb:g} GB), or "
            "fails in a library; make it smaller."
        ) from error
    finally:
        child.kill()
        child.join()
        ours.close()
    if "error" in head:
        raise InvalidInput(str(head["error"]))
    return (head["found"], content), [*head["isolated"]]


def _run(work: Callable[[], Outcome], answer: Connection, policy: "Policy") -> None:
    """Isolate this process, run ``work`` and send what it returns."""
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # those of the request
        os.dup2(silent, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if policy.device == "cpu":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + int(policy.memory_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    libc = ctypes.CDLL(None, use_errno=True)
    isolated_by, content = _without_network_and_files(libc), b""
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # who is killed counts no seconds
    try:
        found, content = work()
        head: dict[str, Any] = {"found": found, "isolated": isolated_by}
    except InvalidInput as error:
        head = {"error": error.sentences[0]}
    except Exception as error:  # its text may tell of a test item
        is_memory = isinstance(error, MemoryError) or "alloc" in str(error)  # libraries raise errors of their own
        other = f"A model cannot be scored ({type(error).__name__}); `holdout check` tries it here."
        head = {"error": TOO_LARGE if is_memory else other}
    for part in (json.dumps(head).encode(), content):
        answer.send_bytes(part)


def _without_network_and_files(libc: ctypes.CDLL) -> list[str]:
    """Leave the network, and close all files but those of :data:`READABLE`; return what succeeded."""
    done = ["network"] if libc.unshare(NEW_USER | NEW_NETWORK) == 0 else []
    rights = ctypes.c_uint64(ALL_ACCESS)
    rules = libc.syscall(CREATE_RULESET, ctypes.byref(rights), 8, 0)
    if rules < 0:
        return done
    for place in READABLE:
        with suppress(OSError):
            folder = os.open(place, os.O_PATH)
            libc.syscall(ADD_RULE, rules, 1, struct.pack("<Qi", READ, folder), 0)
            os.close(folder)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(RESTRICT_SELF, rules, 0) == 0:
        done.append("files")
    os.close(rules)
    return done
