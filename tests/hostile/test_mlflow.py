"""MLflow databases that were emptied, deleted or changed between a run and the commands that write to them."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import holdout_here, plain
from support.tampered import Copied

from hostile.world import LOSSES


@pytest.fixture
def database(copied: Copied) -> Path:
    return copied.runs / "mlflow.db"


def _sql(*statements: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with sqlite3.connect(path) as found:
            for statement in statements:
                found.execute(statement)
        found.close()

    return change


def _rows(path: Path, table: str) -> int:
    with sqlite3.connect(path) as found:
        count = found.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    found.close()
    return int(count)


WRITTEN_AGAIN: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "without runs": _sql("DELETE FROM tags", "DELETE FROM latest_metrics", "DELETE FROM metrics", "DELETE FROM runs"),
}

REFUSED: dict[str, Callable[[Path], object]] = {
    "garbage": lambda path: path.write_bytes(b"no database" * 1000),
    "a folder": lambda path: [path.unlink(), path.mkdir()],
    "of another workspace": _sql("UPDATE experiments SET workspace = '/dev/zero'"),
    "of a later version": _sql("UPDATE alembic_version SET version_num = 'ffffffffffff'"),
}


@pytest.mark.parametrize("name", WRITTEN_AGAIN)
def test_register_writes_what_is_missing(name: str, database: Path) -> None:
    WRITTEN_AGAIN[name](database)
    said = plain(holdout_here("sync", "small", "--register", "--runs", database.parent).stdout)
    assert "models:/small@champion is the model of " in said
    assert _rows(database, "model_versions") == len(LOSSES)
    holdout_here("sync", "small", "--runs", database.parent)
    assert _rows(database, "runs") >= 5, "trials, losses and the search"


@pytest.mark.parametrize("options", [(), ("--register",)])
@pytest.mark.parametrize("name", REFUSED)
def test_what_mlflow_cannot_write_is_a_sentence(name: str, options: tuple[str, ...], database: Path) -> None:
    REFUSED[name](database)
    done = holdout_here("sync", "small", *options, "--runs", database.parent, code=(1, 2))
    assert len(done.stderr.strip().splitlines()) == 1
    assert "MLflow cannot be written (" in plain(done.stderr) or "mlflow.db" in plain(done.stderr)
