"""Whether the services answer that a search writes to."""

from urllib.request import urlopen

from search.config.secrets import expand, without_password
from search.pages.live.types import Health
from search.plan.stored import StoredSearch
from search.tracking.client import health_page
from trainables.mistakes import Mistakes

PATIENCE_S = 3.0


def health(stored: StoredSearch) -> tuple[Health, ...]:
    """The studies' database and MLflow, each with what is wrong with it."""
    return _storage(stored), *_tracking(stored)


def _storage(stored: StoredSearch) -> Health:
    problem = None
    try:
        if stored.storage is None:
            problem = "there is none yet"
        else:
            with stored.storage.connect():
                pass
    except Exception as error:  # whatever a driver of a database raises
        problem = _first_line(error)
    shown = stored.config["search"]["storage"] or "study.db in the search's folder"
    return Health(service="studies", address=without_password(str(shown)), problem=problem)


def _tracking(stored: StoredSearch) -> list[Health]:
    address = stored.config["tracking"]["uri"]
    if not str(address).startswith("http"):
        return []  # a file of the driver's own
    try:
        with urlopen(health_page(expand(str(address))), timeout=PATIENCE_S):
            problem = None
    except (OSError, Mistakes) as error:
        problem = _first_line(error)
    return [Health(service="MLflow", address=without_password(str(address)), problem=problem)]


def _first_line(error: Exception) -> str:
    return without_password(f"{type(error).__name__}: {error}".splitlines()[0])
