"""Checks of addresses, folders, machines, and of the search that another one starts from."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import urlopen

from search.config.search_config import SearchConfig, differences
from search.config.tables import engine_name
from search.config.validation import Findings
from search.plan.runs import existing_run, trusted_config
from search.secrets import expand, health_page, resolved, without_password
from search.trust import STORAGE
from trainables.files import as_path
from trainables.gpu_driver import driver_problem, installed_driver
from trainables.mistakes import Mistakes
from trainables.storage import in_time

if TYPE_CHECKING:
    from search.plan.stored import StoredSearch

# Addresses and folders.

TRACKING_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql")
STORAGE_SCHEMES = ("sqlite", "postgresql", "mysql")
PATIENCE_S = 10
"""Time limit for a server to answer, in seconds."""


def check_addresses(found: Findings, config: SearchConfig) -> None:
    """Check that every address in the search file can be used: database, MLflow server, checkpoint storage, cache."""
    if storage := config.search.storage:
        found.check(lambda: _check_database("search.storage", storage, STORAGE_SCHEMES, "studies"))
    if uri := config.tracking.uri:
        found.check(lambda: check_tracking(uri))
    if webhook := config.tracking.webhook:
        found.check(lambda: _check_webhook(webhook))
    if path := config.checkpoints.storage_path:
        found.check(lambda: _check_store(path))
    if cache := config.dataset.cache:
        found.check(lambda: _check_folder("dataset.cache", Path(cache)))


def check_runs_folder(found: Findings, runs: Path) -> None:
    """Check that the runs folder, or the folder in which it will be created, is writable."""
    found.check(lambda: _check_folder("--runs", runs))


def _check_folder(key: str, folder: Path) -> None:
    """Raise :class:`Mistakes` if ``folder``, or the folder in which it will be created, is not writable."""
    if "\0" in str(folder):
        raise Mistakes(f"{key}: {str(folder)!r} holds a zero byte, which no path may; name a folder of your own.")
    parent = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise Mistakes(f"{key}: {parent} cannot be written to; name a folder of your own.")


def _check_store(address: str) -> None:
    try:
        path = as_path(address)
        in_time(path.exists)
        if isinstance(path, Path):
            _check_folder("checkpoints.storage_path", path)
    except Mistakes:
        raise
    except Exception as error:  # each storage library has its own error types
        shown = address if len(address) <= 80 else f"{address[:77]}…"
        raise Mistakes(
            f"checkpoints.storage_path: {shown} cannot be read ({type(error).__name__}: "
            f"{getattr(error, 'strerror', None) or error}); install its library, make sure that this machine has "
            "access, or correct the address."
        ) from error


def _refuse_foreign(key: str, file: Path, shown: Path, table: str) -> None:
    """Raise :class:`Mistakes` if a SQLite file has tables, but not the ``table`` of the program that will write it.

    ``shown`` is its path as written, with references to variables.
    """
    if not file.exists():
        return
    import sqlite3

    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    except sqlite3.Error as error:
        raise Mistakes(f"{key}: {shown} is not a SQLite database ({error}); name another file.") from error
    if tables and table not in tables:
        raise Mistakes(
            f"{key}: {shown} is the database of another program (it has the tables {', '.join(tables[:3])}, but not "
            f"{table}); name another file."
        )


def _check_database(key: str, address: str, schemes: tuple[str, ...], table: str) -> None:
    url = expand(address)
    try:
        scheme = urlsplit(url).scheme.partition("+")[0]
    except ValueError as error:
        raise Mistakes(f"{key} is not a valid address ({error}); it is {without_password(address)!r}.") from error
    if scheme not in schemes:
        raise Mistakes(f"{key} must begin with one of {', '.join(f'{name}:' for name in schemes)}; it is {address!r}.")
    if scheme == "sqlite":
        file, shown = Path(url.partition(":///")[2]), Path(address.partition(":///")[2])
        if not file.parent.is_dir() or not os.access(file.parent, os.W_OK):
            raise Mistakes(f"{key}: the folder {shown.parent} does not exist or cannot be written to; make it first.")
        _refuse_foreign(key, file, shown, table)
        return
    import sqlalchemy

    try:
        arguments = {"connect_timeout": PATIENCE_S}
        with sqlalchemy.create_engine(url, connect_args=arguments, poolclass=sqlalchemy.NullPool).connect():
            pass
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, ValueError) as error:
        reason = without_password(str(getattr(error, "orig", error)).strip().splitlines()[0])
        raise Mistakes(
            f"{key}: {without_password(address)} does not answer ({reason}); start the database or correct the address."
        ) from error


def check_tracking(address: str) -> None:
    """Raise :class:`Mistakes` if no MLflow server or database answers at ``address``, or it denies access."""
    shown = without_password(address)
    try:
        uri = expand(address)
        parts = urlsplit(uri)
        _ = parts.port
    except Mistakes:
        raise
    except ValueError as error:
        raise Mistakes(f"tracking.uri is not a valid address ({error}); it is {shown!r}.") from error
    if parts.scheme not in ("http", "https"):
        _check_database("tracking.uri", address, TRACKING_SCHEMES, "experiments")
        return
    try:
        with urlopen(health_page(uri), timeout=PATIENCE_S):
            pass
    except (OSError, ValueError, HTTPException) as error:
        raise Mistakes(
            f"tracking.uri: no MLflow server answers at {shown} ({without_password(str(error))}); start it or correct "
            "the address."
        ) from error
    from search.tracking import login_refusal

    if refusal := login_refusal(uri):
        raise Mistakes(
            f"tracking.uri: the MLflow server at {shown} denies access ({refusal}); put user and password into "
            "~/.mlflow/credentials, or into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )


def _check_webhook(reference: str) -> None:
    """Raise :class:`Mistakes` if the variable is not set or holds no address; nothing is posted."""
    try:
        address = resolved(reference)
    except Mistakes as error:
        raise Mistakes(f"tracking.webhook: {error}") from error
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and address.isprintable()
    except ValueError:
        is_address = False
    if not is_address:
        raise Mistakes(
            f"tracking.webhook: {reference} holds no address that begins with https:// or http://; export one."
        )


# Machines.


def check_machine(found: Findings, config: SearchConfig) -> None:
    """Check that this machine has the resources of a trial or, with ``RAY_ADDRESS``, that the cluster answers.

    A cluster's resources are checked on connection, before anything is created.
    """
    address = os.environ.get("RAY_ADDRESS")
    if address and engine_name(config.resources.engine, config.resources.gpus_per_trial) == "ray":
        found.add(_cluster_mistakes(address))
    else:
        for key, there in {"cpus_per_trial": lambda: os.cpu_count() or 1, "gpus_per_trial": _gpus}.items():
            if not found.left_out.touched(f"resources.{key}"):
                found.add(_lacking(key, getattr(config.resources, key), there))


def _lacking(key: str, wanted: float, there: Callable[[], int]) -> list[str]:
    if not wanted or wanted <= (available := there()):
        return []
    because = _driver_problem() if key == "gpus_per_trial" else ""
    return [
        f"resources.{key} is {wanted:g} and this machine has {available} {key[:3].upper()}s{because}; ask for fewer, "
        "or set RAY_ADDRESS to a cluster that has them."
    ]


def _driver_problem() -> str:
    """Return why PyTorch finds no GPU, in brackets, if the driver is too old for it."""
    import torch

    problem = driver_problem(torch.version.cuda, installed_driver())
    return f" ({problem})" if problem else ""


def _gpus() -> int:
    import torch  # takes seconds, and most searches of a machine without GPUs ask for none

    return torch.cuda.device_count()


def _cluster_mistakes(address: str) -> list[str]:
    """Return a mistake if nothing listens at ``RAY_ADDRESS``: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if not port.isdigit():
        return []  # a word of Ray's own, such as auto
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        return [
            f"RAY_ADDRESS is {address!r} and nothing answers there ({error.strerror or error}); start Ray there, "
            "correct the address, or unset it to search on this machine alone."
        ]
    return []


EQUAL = (
    "dataset",
    "split",
    "model",
    "training",
    "losses",
    "training_by_loss",
    "space",
    "search.objective",
    "search.objectives",
    "search.constraints",
    "metrics",
)
"""Entries on which a trial's value depends, and which must be the same in both searches."""


MAY_DIFFER = ("dataset.cache",)
"""Entries within these that change no value."""


def check_learning(found: Findings, config: SearchConfig, runs: Path) -> None:
    """Check that the searches named by ``search.learn_from`` exist and have chosen for a loss of this search."""
    for name in config.search.learn_from if isinstance(config.search.learn_from, tuple) else ():
        from search.plan.stored import StoredSearch  # imports sqlalchemy

        try:
            folder = existing_run(runs, name)
            losses = StoredSearch(folder).losses
        except Mistakes as error:
            found.add(f"search.learn_from: {sentence}" for sentence in error.sentences)
            continue
        if not folder.selection.exists() or not folder.summary.exists():
            found.add([f"search.learn_from: {name} has not chosen yet; wait until it has, or remove it."])
        elif not {*losses} & {*config.loss_names}:
            found.add(
                [
                    f"search.learn_from: {name} searches {', '.join(losses)}, and this search none of them; name a "
                    "search with the same losses."
                ]
            )


def check_origin(found: Findings, config: SearchConfig, runs: Path) -> None:
    """Check that the search named by ``search.from`` exists, and that its trials could be this search's own."""
    origin = config.search.origin
    if origin is None:
        return
    try:
        folder = existing_run(runs, origin)
        stored = trusted_config(folder, addresses=(STORAGE,))
    except Mistakes as error:
        found.add(f"search.from: {sentence}" for sentence in error.sentences)
        return
    from search.plan.stored import StoredSearch  # imports sqlalchemy

    found.add(_different(found, origin, stored, config))
    found.add(_without_trials(StoredSearch(folder), stored.loss_names))


def _different(found: Findings, origin: str, stored: SearchConfig, config: SearchConfig) -> Iterator[str]:
    from search.plan.growth import growth  # imports these checks

    grown = growth(stored, config)
    for key, before, after in differences(stored.model_dump(mode="json"), config.model_dump(mode="json")):
        if grown.covers(key):
            continue
        compared = any(f"{key}.".startswith(f"{section}.") for section in EQUAL) and key not in MAY_DIFFER
        if compared and not found.left_out.touched(key):
            yield (
                f"{key}: the search begins with the trials of {origin} (search.from), where it is {before!r}, and here "
                f"it is {after!r}; make it the same, or remove search.from."
            )


def _without_trials(origin: "StoredSearch", losses: Sequence[str]) -> Iterator[str]:
    """Yield the losses without trials to copy, and those whose default is unfinished and so would not be trial 0."""
    for loss in losses:
        trials = origin.trials(loss)
        if not trials or not trials[0].state.is_finished():
            yield (
                f"search.from: trial 0 of {origin.name}/{loss}, the default, is not finished; `holdout run` the file "
                f"of {origin.name} first, or remove search.from."
            )
