"""Deleting the studies of a search from a database that it shares with others."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.storages import RDBStorage

from search.study.names import search_of
from search.study.storage.read import engine_arguments
from trainables.mistakes import Failure


def study_names(url: str, search: str) -> list[str]:
    """The studies of ``search`` in the database at ``url``; none where it has no table yet.

    Raises:
        Failure: the database does not answer.
    """
    with _at_once(url) as storage:
        return [] if storage is None else _names(storage, search)


def delete_studies(url: str, search: str) -> None:
    """Delete the studies of ``search`` from the database at ``url``, each in a transaction of its own.

    Raises:
        Failure: the database does not answer; what is deleted is deleted, and doing it again deletes the rest.
    """
    with _at_once(url) as storage:
        if storage is not None:
            for name in _names(storage, search):
                optuna.delete_study(study_name=name, storage=storage)


def _names(storage: RDBStorage, search: str) -> list[str]:
    return [name for name in optuna.get_all_study_names(storage) if search_of(name) == search]


@contextmanager
def _at_once(url: str) -> Iterator[RDBStorage | None]:
    """The database without waiting for it: None where nothing was ever stored."""
    import sqlalchemy

    address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").is_file():
        yield None  # SQLite would make the file
        return
    try:
        storage = RDBStorage(url, engine_arguments(url), skip_compatibility_check=True, skip_table_creation=True)
        try:
            yield storage if sqlalchemy.inspect(storage.engine).has_table("studies") else None
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError, ImportError) as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        shown = address.render_as_string(hide_password=True)
        raise Failure(
            f"The database {shown} does not answer ({reason}); start it and give the command again."
        ) from error
