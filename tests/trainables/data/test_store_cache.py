"""Eviction of unused image stores, tested with real processes, some of which are killed."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.forks import forked
from support.image_stores import build_store
from support.refusals import sentences_of
from support.slow_build import slow_build
from support.small_disk import small_disk

from trainables.data.sets.glyphs import Glyphs
from trainables.data.store.cache import LIMIT, InUse, is_used, limit_of, lock_file, make_room, stores_in
from trainables.data.store.contents import read_contents
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import Store

SIDES = (20, 24, 28)
GLYPHS = Glyphs(num_classes=2, images_per_class=4)


def build(cache: Path, side: int) -> Path:
    return build_store(GLYPHS, list(GLYPHS.classes()), short_side=side, cache=cache)


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    """Build stores; the first is the least recently used."""
    paths = [build(tmp_path, side) for side in SIDES]
    for age, path in zip((300, 200, 100), paths, strict=True):
        os.utime(lock_file(path), (path.stat().st_mtime - age,) * 2)
    return paths


def bytes_of(*stores: Path) -> int:
    return sum(file.stat().st_size for store in stores for file in store.iterdir())


def hold(parent: Connection, store: Path) -> None:
    in_use = InUse(store)
    parent.send("held")
    parent.recv()
    in_use.close()
    parent.send("released")
    parent.recv()


def removed(cache: Path, *arguments: Any, limit: int) -> list[Path]:
    return [store.path for store in make_room(cache, *arguments, limit=limit)]


@contextmanager
def holder(store: Path) -> Iterator[tuple[ForkProcess, Connection]]:
    """Start a process that uses a store until something is sent to it, and then keeps running."""
    process, connection = forked(hold, store)
    assert connection.recv() == "held"
    try:
        yield process, connection
    finally:
        process.kill()
        process.join()


def test_the_least_recently_used_go_first(stores: list[Path], tmp_path: Path) -> None:
    Store(stores[0])  # the least recently used one becomes the most recent
    limit = bytes_of(stores[0], stores[2])
    assert removed(tmp_path, limit=limit) == [stores[1]]
    assert removed(tmp_path, limit=limit) == []
    assert removed(tmp_path, lambda: 1, limit=limit) == [stores[2]]
    assert [store.path for store in stores_in(tmp_path)] == [stores[0]]
    assert np.array_equal(Store(build(tmp_path, SIDES[1])).labels_N, np.repeat([0, 1], 4))


def test_a_used_store_stays_until_released_or_its_user_dies(stores: list[Path], tmp_path: Path) -> None:
    with holder(stores[0]) as (one, _), holder(stores[0]) as (_, other), holder(stores[2]) as (third, _):
        assert removed(tmp_path, limit=0) == [stores[1]]
        assert is_used(stores[0])
        one.kill()
        one.join()
        assert removed(tmp_path, limit=0) == []
        other.send("release it")
        assert other.recv() == "released"
        assert removed(tmp_path, limit=0) == [stores[0]]
        third.kill()
        third.join()
        assert removed(tmp_path, limit=0) == [stores[2]]


def read(_: Connection, cache: Path) -> None:
    for side in (20, 24, 20, 24, 20):
        spec = StoreSpec(dataset=GLYPHS, class_names=tuple(GLYPHS.classes()), short_side=side, cache=str(cache))
        with spec.held() as path:
            for _ in range(3):
                contents = read_contents(path)
                assert contents.pixels[: 3 * side * side].any()
                assert len(contents.image_keys) == 8


def test_concurrent_readers_and_eviction(tmp_path: Path) -> None:
    readers, evicted = [forked(read, tmp_path)[0] for _ in range(2)], 0
    while any(reader.is_alive() for reader in readers):
        evicted += len(make_room(tmp_path, limit=0))
        time.sleep(0.002)
    assert [reader.exitcode for reader in readers] == [0, 0]
    assert evicted > 2
    assert {path.suffix for path in tmp_path.iterdir()} <= {"", ".lock", ".used"}


def test_an_abandoned_draft_is_removed_and_nothing_else(tmp_path: Path) -> None:
    process, _ = slow_build(tmp_path, read=1)
    (draft,) = stores_in(tmp_path)
    assert draft.is_draft
    for name in ("photographs", "0123.draft", "f" * 63):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pixels.bin").write_bytes(bytes(100))
    (tmp_path / ("a" * 64)).symlink_to(tmp_path / "photographs")
    assert removed(tmp_path, limit=0) == []
    process.kill()
    process.join()
    assert removed(tmp_path, limit=10**9) == [draft.path]
    assert not draft.path.exists()
    assert len(list(tmp_path.rglob("pixels.bin"))) >= 3, "nothing else is touched"


def test_a_new_store_makes_room_for_itself(stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = Store(stores[0])
    monkeypatch.setenv(LIMIT, str(bytes_of(*stores) / 1e9))
    new = build(tmp_path, 32)
    left = {store.path for store in stores_in(tmp_path)}
    assert left == {stores[0], new}  # both others had to be removed
    assert len(used) == 8
    monkeypatch.setenv(LIMIT, "0")
    assert build(tmp_path, 36).is_dir()  # a needed store is built whatever the limit
    assert stores[0].is_dir()


def test_a_disk_that_is_nearly_full_or_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT, "1")
    with small_disk(tmp_path / "disk") as disk:
        first = build(disk.path, 40)
        disk.leave(10_000)
        second = build(disk.path, 42)
        assert second.is_dir()
        assert not first.exists()
        lock_file(second).unlink()
        subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        assert len(Store(build(disk.path, 42))) == 8
        assert not is_used(second)


def test_the_limit_is_the_environment_s_or_half_the_space(
    stores: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(LIMIT, raising=False)
    there = os.statvfs(tmp_path)
    half = 0.5 * (there.f_bavail * there.f_frsize + bytes_of(*stores))
    assert abs(limit_of(tmp_path) - half) < 0.01 * half
    monkeypatch.setenv(LIMIT, "1.5")
    assert limit_of(tmp_path) == 1_500_000_000
    for text in ("much", "-1", "inf", "nan", ""):
        monkeypatch.setenv(LIMIT, text)
        said = f"{LIMIT} must be a number of gigabytes, such as 200; it is '{text}'."
        assert sentences_of(limit_of, tmp_path) == (said,)
