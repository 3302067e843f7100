"""The child process that embeds with a stranger's model: no files of the vault, no network, limits, and its record."""

import os
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from support.forks import forked
from support.listening import listening
from support.refusals import sentences_of
from support.vault_requests import model_of, opened, vault_of_vectors

from search.vault.held import Policy
from search.vault.sandbox import isolated

LIMITS = Policy(seconds=20.0, memory_gb=1.0)


@pytest.fixture(scope="module", autouse=True)
def can_isolate() -> None:
    """Skip where the kernel has neither Landlock nor user namespaces; the signed answer says so there."""
    _, by = isolated(lambda: ({}, b""), LIMITS)
    if by != ["network", "files"]:
        pytest.skip(f"this kernel isolates a process by {by} alone")


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = vault_of_vectors(tmp_path_factory.mktemp("vault"))
    assert opened(folder, model_of())["isolated"] == ["files", "network"], "the signed answer says so"
    return folder


def tried(*works: Callable[[], object]) -> list[str]:
    """Return the names of the errors of ``works`` in one child process; "" for one that succeeds."""

    def outcome() -> tuple[dict[str, Any], bytes]:
        errors = []
        for work in works:
            try:
                work()
                errors.append("")
            except OSError as error:
                errors.append(type(error).__name__)
        return {"errors": errors}, b""

    (found, _), by = isolated(outcome, LIMITS)
    assert by == ["network", "files"]
    return list(found["errors"])


def test_no_file_of_the_vault_is_read_listed_or_changed(vault: Path) -> None:
    files = [path for path in sorted(vault.rglob("*")) if path.is_file()]
    folders = sorted({vault, *(path.parent for path in files)})
    assert {"key", "test.json", "ledger.jsonl", "answer.json", "vectors.npy"} <= {path.name for path in files}
    attempts: list[Callable[[], object]] = []
    for path in files:
        attempts += [path.read_bytes, path.unlink, partial(os.link, path, "/tmp/linked")]
    for folder in folders:
        new = folder / "new"
        attempts += [partial(os.listdir, folder), new.touch, new.mkdir, partial(new.symlink_to, "/etc/passwd")]
    assert tried(*attempts) == ["PermissionError"] * len(attempts)
    assert [path for path in sorted(vault.rglob("*")) if path.is_file()] == files


def test_the_answering_process_is_not_read(tmp_path: Path) -> None:
    process = Path("/proc", str(os.getpid()))
    with (tmp_path / "secret").open("w+") as file:
        names = ("mem", "environ", "maps", f"fd/{file.fileno()}", "root/etc/passwd")
        assert tried(*((process / name).read_bytes for name in names)) == ["PermissionError"] * len(names)


def test_nothing_outside_is_written(tmp_path: Path) -> None:
    new = [place / "vault-was-here" for place in (tmp_path, Path("/tmp"), Path("/dev/shm"), Path.home(), Path("/usr"))]
    assert tried(*(path.touch for path in new)) == ["PermissionError"] * len(new)
    assert not any(path.exists() for path in new)


def test_no_server_is_reached() -> None:
    with listening() as (port, heard):
        hosts = ("127.0.0.1", "192.0.2.1")
        assert tried(*(partial(socket.create_connection, (host, port), 3) for host in hosts)) == ["OSError"] * 2
        assert not heard


def test_no_more_memory_is_taken_than_the_limit() -> None:
    def takes() -> tuple[dict[str, Any], bytes]:
        return {"size": len(bytearray(3_000_000_000))}, b""

    assert sentences_of(lambda: isolated(takes, LIMITS)) == (
        "A model takes more memory than the vault allows; make it smaller.",
    )


def test_what_takes_too_long_is_killed_and_leaves_no_process() -> None:
    def hangs() -> tuple[dict[str, Any], bytes]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            pass

    began, before = time.monotonic(), children()
    sentences = sentences_of(lambda: isolated(hangs, Policy(seconds=0.3, memory_gb=1.0)))
    assert sentences == ("A model takes more than 0.3 s, the limit of the vault for one; make it smaller.",)
    assert time.monotonic() - began < 10
    assert children() <= before


def children() -> set[str]:
    """Return the ids of this process's children, ended ones too."""
    return {name for path in Path("/proc/self/task").glob("*/children") for name in path.read_text().split()}


def test_a_crash_in_a_library_is_a_sentence() -> None:
    (sentence,) = sentences_of(lambda: isolated(lambda: os.abort(), LIMITS))  # type: ignore[func-returns-value]
    assert sentence.startswith("A model ended its process: it takes more memory than the vault allows (1 GB), or fails")


def test_an_error_does_not_tell_its_text() -> None:
    def fails() -> tuple[dict[str, Any], bytes]:
        raise RuntimeError("image 000013.png of class 0007 is dark")

    assert sentences_of(lambda: isolated(fails, LIMITS)) == (
        "A model cannot be scored (RuntimeError); `holdout check` tries it here.",
    )


def _hangs(told: Connection) -> None:
    def hangs() -> tuple[dict[str, Any], bytes]:
        told.send(os.getpid())
        time.sleep(60)
        return {}, b""

    isolated(hangs, LIMITS)


def test_it_ends_with_the_answering_process() -> None:
    """Otherwise a killed request would leave a model that computes without a limit of time."""
    process, ours = forked(_hangs)
    child = int(ours.recv())
    process.kill()
    process.join()
    for _ in range(100):
        if not Path("/proc", str(child)).exists() or " Z " in Path("/proc", str(child), "stat").read_text():
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    pytest.fail("the child process goes on")
