"""The code as it travels to a cluster: the three packages and what is submitted, and nothing else of this machine."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

PACKAGES = ("search", "spaces", "trainables")
SUBMITTED = "submitted.yaml"


@contextmanager
def working_directory(text: str = "") -> Iterator[Path]:
    """A folder that holds the packages, and ``text`` as :data:`SUBMITTED`, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="holdout-code-") as place:
        for package in PACKAGES:
            shutil.copytree(
                str(files(package)), Path(place) / package, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        (Path(place) / SUBMITTED).write_text(text)
        yield Path(place)
