"""Checks of addresses, folders and machines."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from search.addresses import expand, health_page, sqlite_file
from search.config.search_config import SearchConfig
from search.config.validation import Findings
from search.tables import engine_name, ray_address, ray_mistakes
from trainables.common.errors import InvalidInput, Mistake, raise_if_any, without_password
from trainables.common.files import given_path
from trainables.common.process import allotted_cpus, driver_problem

TRACKING_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql")
PATIENCE_S = 10
"""Time limit for a server to answer, in seconds."""


def check_addresses(found: Findings, config: SearchConfig) -> None:
    """Check that every address in the search file can be used: MLflow server, checkpoint storage, cache."""
    if uri := config.tracking.uri:
        found.check(lambda: check_tracking(uri))
    if path := config.checkpoints.storage_path:
        found.check(lambda: _check_store(path))
    if cache := config.dataset.cache:
        found.check(lambda: check_folder("dataset.cache", Path(cache)))


def check_folder(key: str, folder: Path) -> None:
    """Raise :class:`InvalidInput` if ``folder``, or the folder in which it will be created, is not writable."""
    if "\0" in str(folder):
        raise InvalidInput(f"{key}: {str(folder)!r} holds a zero byte, which no path may; name a folder of your own.")
    parent = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"{key}: {parent} cannot be written to; name a folder of your own.")


def _check_store(address: str) -> None:
    try:
        path = given_path(address)
    except InvalidInput as error:
        raise InvalidInput(f"checkpoints.storage_path: {error}") from error
    if isinstance(path, Path):
        check_folder("checkpoints.storage_path", path)


def _check_sqlite(file: Path, shown: Path) -> None:
    """Raise if MLflow cannot use a SQLite file; ``shown`` is its path as written, with references to variables."""
    if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
        raise InvalidInput(
            f"tracking.uri: the folder {shown.parent} does not exist or cannot be written to; make it first."
        )
    if not file.exists():
        return
    import sqlite3

    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except sqlite3.Error as error:
        raise InvalidInput(f"tracking.uri: {shown} is not a SQLite database ({error}); name another file.") from error
    if tables and "experiments" not in tables:
        raise InvalidInput(
            f"tracking.uri: {shown} is the database of another program (it has the tables {', '.join(tables[:3])}, but "
            "not experiments); name another file."
        )


def _check_database(address: str, url: str, scheme: str) -> None:
    if scheme not in TRACKING_SCHEMES:
        schemes = ", ".join(f"{name}:" for name in TRACKING_SCHEMES)
        raise InvalidInput(f"tracking.uri must begin with one of {schemes}; it is {address!r}.")
    if scheme == "sqlite":
        if (file := sqlite_file(url)) is None:
            raise InvalidInput(f"tracking.uri must name a file, as in sqlite:////home/me/x.db; it is {address!r}.")
        _check_sqlite(file, sqlite_file(address) or file)
        return
    import sqlalchemy

    try:
        arguments = {"connect_timeout": PATIENCE_S}
        sqlalchemy.create_engine(url, connect_args=arguments, poolclass=sqlalchemy.NullPool).connect().close()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as error:
        reason = without_password(str(getattr(error, "orig", error)).strip()).splitlines()[0]
        raise InvalidInput(
            f"tracking.uri: {address} does not answer ({reason}); start the database or correct the address."
        ) from error


def check_tracking(address: str) -> None:
    """Raise :class:`InvalidInput` if no MLflow server or database answers at ``address``, or it denies access."""
    uri = expand(address)
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError as error:
        raise InvalidInput(f"tracking.uri is not a valid address ({error}); it is {address!r}.") from error
    if parts.scheme not in ("http", "https"):
        _check_database(address, uri, parts.scheme.partition("+")[0])
        return
    try:
        with suppress(HTTPError):  # it answers; a server before MLflow may ask for a user here, too
            urlopen(health_page(uri), timeout=PATIENCE_S).close()
    except (OSError, ValueError, HTTPException) as error:
        raise InvalidInput(
            f"tracking.uri: no MLflow server answers at {address} ({error}); start it or correct the address."
        ) from error
    from search.tracking import login_refusal

    if refusal := login_refusal(uri):
        raise InvalidInput(f"tracking.uri: the server at {address} {refusal}")


def check_machine(found: Findings, config: SearchConfig) -> None:
    """Check that this machine has the resources of a trial or, with a Ray cluster, that it answers.

    Ray must be able to start this Python. A cluster's resources are checked on connection, before anything is created.
    """
    resources, address = config.resources, ray_address()
    is_ray = engine_name(resources.engine, resources.gpus_per_trial) == "ray"
    if address and is_ray:
        found.add(ray_mistakes() or _cluster_mistakes(address))
        return
    lacking = [*_lacking("cpus_per_trial", resources.cpus_per_trial, allotted_cpus())]
    if resources.gpus_per_trial:
        import torch  # takes seconds, and most searches of a machine without GPUs ask for none

        lacking += _lacking("gpus_per_trial", resources.gpus_per_trial, torch.cuda.device_count())
    found.add(lacking or (ray_mistakes() if is_ray else ()))


def _lacking(key: str, wanted: float, available: int) -> Iterator[Mistake]:
    if wanted > available:
        problem = driver_problem() if key == "gpus_per_trial" else None
        because = f" ({problem})" if problem else ""
        text = f"is {wanted:g} and this machine has {available} {key[:3].upper()}s{because}"
        yield Mistake(f"resources.{key}", text, "ask for fewer, or set RAY_ADDRESS to a cluster that has them")


def _cluster_mistakes(address: str) -> Iterator[str]:
    """Yield a mistake if nothing listens at ``RAY_ADDRESS``: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        if port.isdigit():  # else a word of Ray's own, such as auto
            socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        yield (
            f"RAY_ADDRESS is {address!r} and nothing answers there ({error.strerror or error}); start Ray there, "
            "correct the address, or unset it to search on this machine alone."
        )


FROZEN = ("key", "test", "classes", "items", "by_class", "labels_only")
"""The entries of a vault's description that a split freezes."""


def check_vault(config: SearchConfig, key: str | None = None) -> dict[str, Any]:
    """Return the description of a search's vault; raise with all that prevents its test. ``key`` is a resumed one's."""
    from search.vault.held import TEST
    from search.vault.protocol import describe

    final, features, own = config.final, config.dataset.source.features(), config.trainable
    found = describe(str(final.vault), config.test_metrics)
    sentences, opened, openings = [*found["problems"]], found["opened"], found["openings"]
    if key not in (None, found["key"]):
        sentences.append(
            f"final.vault: the vault {found['key'][:12]} answers, and the search began with the vault {key:.12}; name "
            "that one, or give the search a new name."
        )
    if opened >= openings:
        sentences.append(
            f"final.vault: {opened} of {openings} openings of the vault were made; ask its owner for another."
        )
    if found["features"] != features:
        takes, has = (f"vectors of {count} numbers" if count else "images" for count in (found["features"], features))
        sentences.append(f"final.vault: its items are {takes}, and those of dataset are {has}; name another vault.")
    if found["labels_only"] and not Path(final.vault_items or "", TEST).is_file():
        sentences.append(
            "final.vault_items: the vault hands out its test items without labels and takes embeddings of them; give "
            f"the folder with these items, not {final.vault_items!r}."
        )
    if not found["labels_only"] and final.vault_items is not None:
        sentences.append("final.vault_items: the vault keeps its test items secret; set it to null.")
    elif not found["labels_only"] and own is not None:
        sentences.append(
            f"final.vault: {own} is a user-defined training, whose code the vault does not run; ask its owner for one "
            "that hands out its items (`holdout vault make --labels-only`)."
        )
    raise_if_any(sentences)
    return found
