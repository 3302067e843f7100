"""The MLflow client, the check of its address, and models downloaded from MLflow."""

import atexit
import logging
import os
import re
import shutil
import tempfile
import textwrap
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from filelock import FileLock

from search.addresses import absolute_sqlite, expand, health_page, sqlite_address, sqlite_file
from search.packages import INSTALL, check_extra, missing_packages
from search.tracking.models import FOLDER
from trainables.common.errors import InvalidInput, without_password

if TYPE_CHECKING:
    import torch
    from mlflow import MlflowClient

    from trainables.inference.embedder import Embedder
    from trainables.training.own import OwnModel

DATABASES = ("sqlite", "postgresql", "mysql")
PATIENCE_S = 20
"""Seconds to wait for a server or a database."""


def open_client(uri: str) -> "MlflowClient":
    """Return a quiet client without retries (the tracker retries in the background); create a local database."""
    import_mlflow()
    from mlflow import MlflowClient

    if (database := sqlite_file(uri)) and not database.exists():
        with FileLock(f"{database}.lock"):
            if not database.exists():
                # MLflow cannot resume interrupted migrations, so the database is created under another name.
                draft = database.with_name(f"{database.name}.draft")
                draft.unlink(missing_ok=True)
                from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

                # MLflow itself would write the current folder, whatever its name, into SQL for its default experiment.
                artifacts = (database.resolve().parent / "mlartifacts").as_uri()
                SqlAlchemyStore(_for_mlflow(sqlite_address(draft)), artifacts)
                draft.rename(database)
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme in DATABASES:  # connect once: MLflow repeats its first connection for 100 s, whatever the error
        _connect(uri, {} if scheme == "sqlite" else {"connect_timeout": PATIENCE_S})
    return MlflowClient(tracking_uri=_for_mlflow(uri), registry_uri=_for_mlflow(uri))


def _connect(url: str, arguments: dict[str, int]) -> None:
    from sqlalchemy import NullPool, create_engine

    create_engine(url, connect_args=arguments, poolclass=NullPool).connect().close()


def _for_mlflow(uri: str) -> str:
    """Return an address of which MLflow 3.17 makes no folder: of `sqlite:///a%3Fb/x.db` it would make `a%3Fb`."""
    return uri.replace("sqlite:///", "sqlite+pysqlite:///", 1)


def import_mlflow() -> None:
    """Import MLflow, which takes seconds, and keep it quiet."""
    check_extra("MLflow", ["mlflow"])
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(PATIENCE_S))
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")  # otherwise models include the project
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Not `import mlflow`: next to our folder of that name it would succeed without it.
    from mlflow import MlflowClient  # noqa: F401

    for library in ("mlflow", "urllib3"):  # mlflow sets its own level on import
        logging.getLogger(library).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # 80 lines about an error that is also raised


def is_outage(error: Exception) -> bool:
    """Return True if the server or database failed; False if it refuses this one value or run."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, MlflowException):
        return error.get_http_status_code() not in (400, 404) or isinstance(error.__cause__, SQLAlchemyError)
    return isinstance(error, OSError | SQLAlchemyError)


# The check of an address before a search begins.

SCHEMES = ("sqlite", "http", "https", "postgresql", "mysql")
CHECK_S = 10
"""Seconds to wait for a server or a database to answer the check."""


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
            urlopen(health_page(uri), timeout=CHECK_S).close()
    except (OSError, ValueError, HTTPException) as error:
        raise InvalidInput(
            f"tracking.uri: no MLflow server answers at {address} ({error}); start it or correct the address."
        ) from error
    if refusal := _login_refusal(uri):
        raise InvalidInput(f"tracking.uri: the server at {address} {refusal}")


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
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{name}:" for name in SCHEMES)
        raise InvalidInput(f"tracking.uri must begin with one of {schemes}; it is {address!r}.")
    if scheme == "sqlite":
        if (file := sqlite_file(url)) is None:
            raise InvalidInput(f"tracking.uri must name a file, as in sqlite:////home/me/x.db; it is {address!r}.")
        _check_sqlite(file, sqlite_file(address) or file)
        return
    from sqlalchemy.exc import SQLAlchemyError

    try:
        _connect(url, {"connect_timeout": CHECK_S})
    except (SQLAlchemyError, ImportError, ValueError) as error:
        reason = without_password(str(getattr(error, "orig", error)).strip()).splitlines()[0]
        raise InvalidInput(
            f"tracking.uri: {address} does not answer ({reason}); start the database or correct the address."
        ) from error


def _login_refusal(uri: str) -> str | None:
    """Return why the server at ``uri`` lists no experiments, and what helps; None if it does."""
    from mlflow.exceptions import MlflowException

    try:
        open_client(uri).search_experiments(max_results=1)
    except MlflowException as error:
        if (status := error.get_http_status_code()) in (401, 403):
            return (
                f"denies access (HTTP status {status}); put user and password into ~/.mlflow/credentials, or into "
                "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
            )
        return f"does not answer as MLflow ({_reason(error)}); correct the address, or set MLFLOW_TRACKING_TOKEN."
    return None


# Models in MLflow.

TRACKING_URI = "MLFLOW_TRACKING_URI"
FORM = re.compile(
    r"models:/(?P<id>m-\w+)|models:/(?P<name>[^/@]+)(?:@(?P<alias>[^/@]+)|/(?P<version>\d+))|"
    r"runs:/(?P<run>\w+)/(?P<model>[^/]+)"
)


def downloaded_model(address: str) -> Path:
    """Download the model at ``address`` to a temporary folder, which is deleted when the process ends.

    Args:
        address: on the server that ``MLFLOW_TRACKING_URI`` names: ``models:/NAME@ALIAS``, ``models:/NAME/VERSION``,
            ``models:/m-…``, or ``runs:/RUN/NAME`` for the newest model of that name.

    Raises:
        InvalidInput: no server is set or reachable, the model does not exist or was not logged by Holdout.
    """
    found = FORM.fullmatch(address)
    if found is None:
        raise InvalidInput(
            "A model in MLflow is models:/NAME@ALIAS, models:/NAME/VERSION, models:/m-… or runs:/RUN/NAME; not "
            f"{address!r}."
        )
    uri = _tracking_uri(address)
    shown = without_password(uri)
    client = open_client(uri)
    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    try:
        location = _location(client, found)
    except MlflowException as error:
        if error.get_http_status_code() not in (400, 404):  # a missing alias is 400
            raise InvalidInput(f"MLflow at {shown} cannot provide the model {address} ({_reason(error)}).") from error
        location = None
    if location is None:
        raise InvalidInput(f"There is no model {address} at {shown}; check the name and the alias or version.")
    place = tempfile.mkdtemp(prefix="holdout-model-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        return Path(download_artifacts(f"{location}/data/{FOLDER}", dst_path=place, tracking_uri=_for_mlflow(uri)))
    except (MlflowException, OSError) as error:
        raise InvalidInput(
            f"The model {address} at {shown} has no readable folder data/{FOLDER}, as models logged by Holdout have "
            f"({_reason(error)}); give a model that Holdout logged."
        ) from error


def _tracking_uri(address: str) -> str:
    uri = os.environ.get(TRACKING_URI)
    if not uri:
        raise InvalidInput(
            f"{address} is a model in MLflow, whose address is not set; set {TRACKING_URI}, as in "
            f"{TRACKING_URI}=http://127.0.0.1:5000 or {TRACKING_URI}=sqlite:////home/me/runs/mlflow.db."
        )
    uri = absolute_sqlite(uri)
    if (database := sqlite_file(uri)) and not database.is_file():
        raise InvalidInput(f"{TRACKING_URI} is {uri}, and there is no such file; correct the path.")
    return uri


def _location(client: "MlflowClient", found: "re.Match[str]") -> str | None:
    """Return the location of the files of a model, given the parsed address; None if its run has no such model."""
    if found["name"]:
        version = found["version"] or client.get_model_version_by_alias(found["name"], found["alias"]).version
        return str(client.get_model_version_download_uri(found["name"], version))
    if found["id"]:
        return str(client.get_logged_model(found["id"]).artifact_location)
    outputs = client.get_run(found["run"]).outputs
    models = [client.get_logged_model(entry.model_id) for entry in outputs.model_outputs] if outputs else []
    named = [model for model in models if model.name == found["model"]]
    return max(named, key=lambda model: model.creation_timestamp).artifact_location if named else None


def _reason(error: Exception) -> str:
    return textwrap.shorten(without_password(str(error)), 160)


OF_MLFLOW = ("models:/", "runs:/")
"""The prefixes of MLflow's addresses."""


def load_model(
    address: str, *, device: "str | torch.device | None" = None, trust_code: bool = False
) -> "Embedder | OwnModel":
    """Load the model at a path, a URL or an MLflow address; see :func:`holdout.load`."""
    from trainables.inference.model_files import is_of_trainable, read_model

    in_mlflow = address.startswith(OF_MLFLOW)
    if in_mlflow and missing_packages(["mlflow"]):
        raise InvalidInput(
            f"{address} is a model in MLflow, which is not installed; run `{INSTALL}`, or give the model's folder."
        )
    files = read_model(str(downloaded_model(address)) if in_mlflow else address)
    found: Embedder | OwnModel
    if is_of_trainable(files.description):
        from trainables.training.own import own_model_of

        found = own_model_of(files, device=device, trust_code=trust_code)
    else:
        from trainables.inference.embedder import embedder_of

        found = embedder_of(files, device=device, trust_code=trust_code)
    if in_mlflow:
        found.address = address  # the downloaded folder is not visible to other processes
    return found
