"""A child process for work on what a stranger sent: without network, without the vault's files, with limits.

It is a fork, so libraries are imported once. The limits are Linux's: user and network namespaces (unshare), Landlock
rules for files, and resource limits.
"""

import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainables.errors import InvalidInput

Outcome = tuple[dict[str, Any], bytes]
"""What the work returns: JSON types, and the content of a file."""

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
NO_NEW_PRIVILEGES = 38
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
ALL_ACCESS = (1 << 13) - 1
"""The rights of Landlock's first version."""
READ = 1 << 0 | 1 << 2 | 1 << 3
"""To execute and read files, and to list folders."""

READABLE = (
    *("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/opt", sys.prefix, sys.base_prefix),
    *(str(Path(__file__).parents[2] / package) for package in ("search", "spaces", "trainables")),
)
"""Where Python and its libraries lie, and this package."""

MOST_ANSWERED = 1 << 30


def isolated(work: Callable[[], Outcome], *, seconds: float, memory_gb: float | None) -> tuple[Outcome, list[str]]:
    """Run ``work`` in a child process; return what it returns, and what isolated it: "network", "files".

    Args:
        work: must not need a file outside of Python's and the system's folders.
        seconds: the time limit.
        memory_gb: the limit of memory above what this process has; None for no limit, as a GPU's driver needs.

    Raises:
        InvalidInput: it raises one, or exceeds a limit.
    """
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.close(ours)
            _run(work, theirs, seconds, memory_gb)
        os._exit(0)
    os.close(theirs)
    content, end = bytearray(), time.monotonic() + seconds
    try:
        while len(content) < MOST_ANSWERED and select.select([ours], [], [], max(0.0, end - time.monotonic()))[0]:
            if not (part := os.read(ours, 1 << 20)):
                break
            content += part
        is_late = time.monotonic() >= end
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if is_late:
        raise InvalidInput(f"A model takes more than {seconds:g} s, the limit of the vault for one; make it smaller.")
    try:
        size = struct.unpack_from("<Q", content)[0]
        head = json.loads(content[8 : 8 + size])
        if "error" in head:
            raise InvalidInput(str(head["error"]))
        return (head["found"], bytes(content[8 + size :])), [*head["isolated"]]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"A model ended its process: it takes more memory than the vault allows ({memory_gb:g} GB), or fails in a "
            "library; make it smaller."
            if memory_gb
            else "A model ended its process."
        ) from error


def _run(work: Callable[[], Outcome], answer: int, seconds: float, memory_gb: float | None) -> None:
    """Isolate this process, run ``work`` and write what it returns to the file descriptor ``answer``."""
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # those of the request
        os.dup2(silent, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if memory_gb is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + int(memory_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    isolated_by = _without_network_and_files()
    content = b""
    try:
        found, content = work()
        head: dict[str, Any] = {"found": found, "isolated": isolated_by}
    except InvalidInput as error:
        head = {"error": error.sentences[0]}
    except Exception as error:  # its text may tell of a test item
        if isinstance(error, MemoryError) or "alloc" in str(error):  # libraries raise errors of their own
            head = {"error": "A model takes more memory than the vault allows; make it smaller."}
        else:
            head = {"error": f"A model cannot be scored ({type(error).__name__}); `holdout check` tries it here."}
    text = json.dumps(head).encode()
    with open(answer, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + content)


def _without_network_and_files() -> list[str]:
    """Leave the network, and close all files but those of :data:`READABLE`; return what succeeded."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = []
    if libc.unshare(NEW_USER | NEW_NETWORK) == 0:
        done.append("network")
    rights = ctypes.c_uint64(ALL_ACCESS)
    rules = libc.syscall(CREATE_RULESET, ctypes.byref(rights), 8, 0)
    if rules < 0:
        return done
    for place in READABLE:
        with suppress(OSError):
            folder = os.open(place, os.O_PATH)
            rule = struct.pack("<Qi", READ, folder)
            libc.syscall(ADD_RULE, rules, 1, rule, 0)
            os.close(folder)
    libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if libc.syscall(RESTRICT_SELF, rules, 0) == 0:
        done.append("files")
    os.close(rules)
    return done
