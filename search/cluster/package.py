"""The code as it travels to a cluster: the three packages and the search file, and nothing else of this machine."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

PACKAGES = ("search", "spaces", "trainables")
SEARCH_FILE = "search.yaml"


@contextmanager
def working_directory(search_file: str = "") -> Iterator[Path]:
    """A folder that holds the packages, and ``search_file`` as :data:`SEARCH_FILE`, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="holdout-code-") as place:
        for package in PACKAGES:
            shutil.copytree(
                str(files(package)), Path(place) / package, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        (Path(place) / SEARCH_FILE).write_text(search_file)
        yield Path(place)
