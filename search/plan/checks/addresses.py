"""Whether the addresses of a search answer: its database, its MLflow server, its store of checkpoints."""

import os
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

from search.config.search_config import SearchConfig
from search.config.secrets import expand, without_password
from search.plan.checks.findings import Findings
from search.tracking.client import health_page
from trainables.files import as_path
from trainables.mistakes import Mistakes

TRACKING_SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql")
STORAGE_SCHEMES = ("sqlite", "postgresql", "mysql")
PATIENCE_S = 10


def check_addresses(found: Findings, config: SearchConfig) -> None:
    """Every address that the search file gives can be used."""
    if storage := config.search.storage:
        found.check(lambda: _check_database("search.storage", storage, STORAGE_SCHEMES))
    if uri := config.tracking.uri:
        found.check(lambda: check_tracking(uri))
    if path := config.checkpoints.storage_path:
        found.check(lambda: _check_store(path))


def check_runs_folder(found: Findings, runs: Path) -> None:
    """The runs folder, or the folder that it is to be made in, can be written to."""
    parent = next(path for path in (runs, *runs.resolve().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        found.add([f"--runs: {parent} cannot be written to; name a folder of your own."])


def _check_store(address: str) -> None:
    try:
        as_path(address).exists()
    except Exception as error:  # every store's library has its own
        raise Mistakes(
            f"checkpoints.storage_path: {address} cannot be looked at ({type(error).__name__}: {error}); install its "
            "library, see that this machine may use it, or mend the address."
        ) from error


def _check_database(key: str, address: str, schemes: tuple[str, ...]) -> None:
    url = expand(address)
    scheme = urlsplit(url).scheme.partition("+")[0]
    if scheme not in schemes:
        raise Mistakes(f"{key} must begin with one of {', '.join(f'{name}:' for name in schemes)}; it is {address!r}.")
    if scheme == "sqlite":
        folder = Path(url.partition(":///")[2]).parent
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise Mistakes(f"{key}: the folder {folder} does not exist or cannot be written to; make it first.")
        return
    import sqlalchemy

    try:
        with sqlalchemy.create_engine(url, connect_args={"connect_timeout": PATIENCE_S}).connect():
            pass
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        reason = str(getattr(error, "orig", error)).strip().splitlines()[0]
        raise Mistakes(
            f"{key}: {without_password(address)} does not answer ({reason}); start the database or mend the address."
        ) from error


def check_tracking(address: str) -> None:
    if urlsplit(address).scheme not in ("http", "https"):
        _check_database("tracking.uri", address, TRACKING_SCHEMES)
        return
    shown = without_password(address)
    uri = expand(address)
    try:
        with urlopen(health_page(uri), timeout=PATIENCE_S):
            pass
    except (OSError, ValueError) as error:
        raise Mistakes(
            f"tracking.uri: no MLflow server answers at {shown} ({error}); start it or mend the address."
        ) from error
    from search.tracking.client import login_refusal

    if refusal := login_refusal(uri):
        raise Mistakes(
            f"tracking.uri: the MLflow server at {shown} does not let this user in ({refusal}); put user and password "
            "into ~/.mlflow/credentials, or into MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )
