"""SQLite's studies are one file again when their driver ends."""

import gc
from pathlib import Path
from typing import Any

from search.study.storage.open import close_storage, open_storage
from search.study.storage.read import read_storage


def test_a_reader_that_was_dropped_and_not_yet_collected_does_not_keep_the_log(tmp_path: Path) -> None:
    """Found by `make soak`: a connection that only the garbage collector closes kept the log beside the studies."""
    url = f"sqlite:///{tmp_path}/study.db"
    storage = open_storage(url)
    gc.disable()
    try:
        reader = read_storage(url)
        with reader.connect() as connection:
            connection.exec_driver_sql("SELECT COUNT(*) FROM studies")
        dropped: list[Any] = [reader, connection]
        dropped.append(dropped)
        del reader, connection, dropped
        close_storage(storage)
        assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
    finally:
        gc.enable()
