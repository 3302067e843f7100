"""One driver a search on PostgreSQL, tried with a real server."""

import os
import signal
import socket
import time
from collections.abc import Iterator

import psycopg
import pytest
from support.services import Postgres, postgres

from search.driver.start_up import lock_key, only_driver_of
from trainables.errors import InvalidInput

POLL_S = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with postgres(tmp_path_factory.mktemp("postgres"), "studies", "others") as server:
        yield server


@pytest.fixture
def url(server: Postgres) -> str:
    return server.url("studies")


def test_the_second_driver_is_refused_naming_the_first(url: str, server: Postgres) -> None:
    with only_driver_of(["birds", "cars"], url):
        with (
            pytest.raises(InvalidInput, match=f"cars is being run by process {os.getpid()} on {socket.gethostname()}"),
            only_driver_of(["cars"], url),
        ):
            pass
        with only_driver_of(["fish"], url), only_driver_of(["birds"], server.url("others")):
            pass
    with only_driver_of(["birds"], url):
        pass


def test_the_lock_outlives_a_restart_of_the_server(url: str, server: Postgres) -> None:
    with only_driver_of(["birds"], url, POLL_S):
        server.stop()
        time.sleep(0.2)
        server.start()
        time.sleep(1)
        with pytest.raises(InvalidInput, match="birds is being run by"), only_driver_of(["birds"], url, POLL_S):
            pass


def test_a_driver_that_was_overtaken_while_the_server_was_away_is_interrupted(url: str) -> None:
    def overtaken() -> None:
        with (
            only_driver_of(["birds"], url, 10 * POLL_S),
            psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other,
        ):
            holder = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'process%'"
            other.execute(f"SELECT pg_terminate_backend(pid) FROM ({holder}) AS holder")
            other.execute("SELECT pg_advisory_lock(%s)", (lock_key("birds"),))
            time.sleep(30)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    with pytest.raises(KeyboardInterrupt):
        overtaken()
    signal.signal(signal.SIGINT, before)
