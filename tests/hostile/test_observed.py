"""What the attack program claims to see is seen, and what is harmless is not."""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from hostile import observed
from hostile.observed import observe
from hostile.world import World


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("world"))
    before = list(sys.path)
    world.set_traps()
    yield world
    world.end()
    sys.path[:] = before


def _say(text: str) -> None:
    sys.stdout.write(text)


def _remove(world: World) -> None:
    next(world.victim.rglob("precious.txt")).unlink()


def _follow_a_link(world: World) -> None:
    Path("link").symlink_to(world.secret)
    Path("link").read_bytes()


def _contact_in_c(world: World) -> None:
    import psycopg

    psycopg.connect(f"host=127.0.0.1 port={world.port} connect_timeout=2")


FAULTS: dict[str, tuple[str, Callable[[World], object]]] = {
    "imports a stranger's module": ("executed", lambda world: __import__(world.module)),
    "runs a shell": ("executed", lambda world: os.system(f"touch {world.canary}")),
    "contacts a host": ("contacted", lambda world: urlopen(f"http://127.0.0.1:{world.port}")),
    "looks up a host": ("contacted", lambda world: socket.getaddrinfo("attack.invalid", 80)),
    "contacts a host from C": ("contacted", _contact_in_c),
    "opens a private file": ("outside", lambda world: world.secret.read_bytes()),
    "follows a link": ("outside", _follow_a_link),
    "removes another's file": ("outside", _remove),
    "prints a private file": ("told", lambda world: _say(world.secret_word)),
    "prints a variable": ("told", lambda world: _say(os.environ["ATTACK_SECRET"])),
    "prints an escape character": ("told", lambda world: _say("\x1b]0;owned\x07")),
    "raises": ("traceback", lambda world: 1 / 0),
    "ends with another exit code": ("traceback", lambda world: sys.exit(3)),
    "is killed": ("traceback", lambda world: os.kill(os.getpid(), 9)),
    "takes memory": ("memory", lambda world: os.urandom(1) * 1_300_000_000),
}


@pytest.mark.parametrize(("column", "fault"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_seen(column: str, fault: Callable[[World], object], world: World, tmp_path: Path) -> None:
    seen = observe(lambda: fault(world) and None, tmp_path, world)
    assert column in seen.problems, seen


def test_what_hangs_is_killed(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "LIMIT_S", 0.5)
    assert set(observe(lambda: time.sleep(60), tmp_path, world).problems) == {"hung"}


def test_a_sentence_and_an_exit_code_are_no_fault(world: World, tmp_path: Path) -> None:
    def refuse() -> int:
        _say("The search file is damaged.\n")
        return 2

    seen = observe(refuse, tmp_path, world)
    assert (seen.code, seen.said, seen.problems) == (2, "The search file is damaged.\n", {})


def test_an_address_that_the_user_typed_may_be_contacted(world: World, tmp_path: Path) -> None:
    seen = observe(lambda: socket.create_connection(("127.0.0.1", 9)), tmp_path, world, may_contact=9)
    assert set(seen.problems) == {"traceback"}, "nothing listens there"
