"""One command in a forked process, and what it did that no command may do with hostile input.

A fork starts in milliseconds with everything imported, ends alone, and can be killed. Python's audit events show what
it opened, imported and contacted; what libraries do in C is seen by the listening port, the canary and the victim
folder.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category
from urllib.parse import urlsplit

from hostile.world import World
from search.driver.synchronise import LOCAL_SERVER

LIMIT_S = 120
MOST_MB = 1000
"""The memory that a command may take in addition to that of this process."""
WRITES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "shutil.rmtree", "os.chmod", "os.link")

OWN_SERVER = repr((urlsplit(LOCAL_SERVER).hostname, urlsplit(LOCAL_SERVER).port))[1:-1]
"""The place of ``mlflow/serve.sh``, which is asked whether it runs. No input can name another."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a command did.

    Attributes:
        code: its exit code; None if it was killed after :data:`LIMIT_S`, negative for a signal.
        said: its output.
        problems: what it must not do, by column of the summary: "executed", "contacted", "outside", "told", "hung",
            "traceback", "memory".
        seconds: how long it took.
    """

    code: int | None
    said: str
    problems: dict[str, str]
    seconds: float


def observe(action: Callable[[], object], folder: Path, world: World, *, may_contact: int | None = None) -> Observed:
    """Call ``action`` in a forked process whose current folder is ``folder``; a return value is its exit code.

    ``may_contact`` is a port of this machine that the command was told to contact.
    """
    said, events = folder / ".said", folder / ".events"
    contacts, victims = world.contacts(), world.victim_state()
    own, start = _memory_mb(), time.monotonic()
    if (child := os.fork()) == 0:
        _be_the_command(action, folder, world, said, events)
    code, used = _wait(child, start)
    seconds = time.monotonic() - start
    text = said.read_text(errors="replace")
    problems = dict(_events(events, world, may_contact))
    if world.canary.exists():
        problems["executed"] = "the canary"
        world.canary.unlink()
    if world.contacts() != contacts:
        problems["contacted"] = "the listening port"
    if world.victim_state() != victims:
        problems["outside"] = "the victim folder was changed"
        world.restore_victim()
    if secret := next((word for word in (world.secret_word, world.variable) if word in text), None):
        problems["told"] = f"it printed {secret}"
    elif named := next((path for path in _written(folder) if world.variable.encode() in path.read_bytes()), None):
        problems["told"] = f"{named.relative_to(folder)} holds {world.variable}"
    unprintable = sorted({letter for letter in text if category(letter) in ("Cc", "Cf", "Cs") and letter not in "\n\t"})
    if unprintable and not problems:
        problems["told"] = f"it printed {unprintable!r}"
    if code is None:
        problems["hung"] = f"more than {LIMIT_S} s"
    elif "Traceback (most recent call last)" in text or code not in (0, 1, 2):
        problems["traceback"] = f"exit code {code}: {text.strip().splitlines()[-1] if text.strip() else 'nothing said'}"
    if (more := used - own) > MOST_MB:
        problems["memory"] = f"{more:,.0f} MB more"
    return Observed(code=code, said=text, problems=problems, seconds=seconds)


def _written(folder: Path) -> Iterator[Path]:
    """Yield the files of a command, except what this module writes."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name not in (".said", ".events"):
            yield path


def _wait(child: int, start: float) -> tuple[int | None, float]:
    """Wait for ``child``; return its exit code and its peak memory in MB. Kill it after :data:`LIMIT_S`."""
    late = False
    while True:
        ended, status, usage = os.wait4(child, 0 if late else os.WNOHANG)
        if ended:
            return None if late else os.waitstatus_to_exitcode(status), usage.ru_maxrss / 1024
        if time.monotonic() - start > LIMIT_S:
            late = True
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.005)


def _memory_mb() -> float:
    """Return the memory that this process uses now, with which a fork begins."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _be_the_command(action: Callable[[], object], folder: Path, world: World, said: Path, events: Path) -> None:
    """Run ``action`` and exit; never returns."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        world.enter(folder)
        _listen(os.open(events, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        code = int(action() or 0)
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 70
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _listen(log: int) -> None:
    """Write every audit event of this process that matters to the file descriptor ``log``, one per line."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo"):
            target = arguments[1] if event == "socket.connect" else arguments[:2]
            os.write(log, f"{event}\t{target!r}\n".encode())
        elif event == "open" and isinstance(arguments[0], str):
            os.write(log, f"{event}\t{os.path.realpath(arguments[0])!r}\n".encode())  # a link may lead outside
        elif event in ("import", "os.system", "os.exec", *WRITES):
            os.write(log, f"{event}\t{arguments!r}\n".encode())

    sys.addaudithook(hook)


def _events(log: Path, world: World, may_contact: int | None) -> Iterator[tuple[str, str]]:
    """Yield a problem for each audit event that must not happen."""
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        event, _, detail = line.partition("\t")
        if event.startswith("socket."):
            is_local = event == "socket.connect" and detail.startswith(("'", "b'"))  # a Unix socket
            if not is_local and OWN_SERVER not in detail and not (may_contact and str(may_contact) in detail):
                yield "contacted", f"{event} {detail[:100]}"
        elif event == "import":
            if world.module in detail:
                yield "executed", f"import {detail[:100]}"
        elif event in ("os.system", "os.exec"):
            yield "executed", f"{event} {detail[:100]}"
        elif str(world.secret) in detail or (str(world.victim) in detail and event in WRITES):
            yield "outside", f"{event} {detail[:160]}"
