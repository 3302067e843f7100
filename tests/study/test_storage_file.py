"""SQLite's database is a single file after its driver has ended."""

from pathlib import Path

from search.study.storage.open import close_storage, open_storage, read_storage


def test_a_reader_that_is_still_there_does_not_keep_the_log(tmp_path: Path) -> None:
    """Found by `make soak`: an open connection of a pool kept the log file."""
    url = f"sqlite:///{tmp_path}/study.db"
    storage = open_storage(url)
    reader = read_storage(url)
    with reader.connect() as connection:
        connection.exec_driver_sql("SELECT COUNT(*) FROM studies")
    close_storage(storage)
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]
