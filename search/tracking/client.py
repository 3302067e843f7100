"""MLflow's client: quiet, asking once, and with its own tables made whole."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"


def open_client(uri: str) -> "MlflowClient":
    """A quiet client that asks once: we ask again ourselves, in the background."""
    os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")  # else a model takes along the project it was logged from
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from mlflow import (
        MlflowClient,  # not `import mlflow`: beside our folder that would succeed without the library
    )

    for library in ("mlflow", "urllib3"):  # mlflow sets its own level when it is imported
        logging.getLogger(library).setLevel(logging.ERROR)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)  # 80 lines for what is raised as well

    if uri.startswith(SQLITE) and not (database := Path(uri.removeprefix(SQLITE))).exists():
        with FileLock(f"{database}.lock"):
            if not database.exists():
                # Its migrations, cut short by a kill, could not be taken up again: the tables come whole or not at all.
                draft = database.with_name(f"{database.name}.draft")
                draft.unlink(missing_ok=True)
                MlflowClient(tracking_uri=f"{SQLITE}{draft}").search_experiments(max_results=1)
                draft.rename(database)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def health_page(uri: str) -> str:
    """What everybody may ask of the server at ``uri``, so without the user that it may name."""
    parts = urlsplit(uri)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], path=f"{parts.path.rstrip('/')}/health").geturl()


def login_refusal(uri: str) -> str | None:
    """Why the server at ``uri`` does not let this user in; None where it does."""
    from mlflow.exceptions import MlflowException

    try:
        open_client(uri).search_experiments(max_results=1)
    except MlflowException as error:
        return f"HTTP status {error.get_http_status_code()}"
    return None
