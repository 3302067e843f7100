"""The code as it travels to a cluster: our packages, the user's that are shipped, and what is submitted."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

PACKAGES = ("holdout", "search", "spaces", "trainables")
SUBMITTED = "submitted.yaml"
LEFT_HERE = shutil.ignore_patterns("__pycache__", ".*")


@contextmanager
def working_directory(text: str = "", shipped: Mapping[str, Path] = MappingProxyType({})) -> Iterator[Path]:
    """A folder with the packages, those ``shipped`` by name, and ``text`` as :data:`SUBMITTED`, while it is needed."""
    with tempfile.TemporaryDirectory(prefix="holdout-code-") as folder:
        directory = Path(folder)
        for package in PACKAGES:
            shutil.copytree(str(files(package)), directory / package, ignore=LEFT_HERE)
        for name, path in shipped.items():
            if path.is_dir():
                shutil.copytree(path, directory / name, ignore=LEFT_HERE)
            else:
                shutil.copy2(path, directory / path.name)
        (directory / SUBMITTED).write_text(text)
        yield directory
