"""Packages: Holdout's own, and those of the extra ``search``.

Our packages are side by side in the repository, and below ``holdout`` in an installed wheel (``setup.py``).
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from trainables.common.errors import InvalidInput, listed

IN_REPOSITORY = not __name__.startswith("holdout.")

PACKAGES = ("holdout", "search", "spaces", "trainables") if IN_REPOSITORY else ("holdout",)

SEARCH = Path(__file__).parent
SPACES = SEARCH.with_name("spaces")
TRAINABLES = SEARCH.with_name("trainables")

TOP = SEARCH.parent if IN_REPOSITORY else SEARCH.parents[1]
"""The folder in which Python finds the top-level packages."""

# The extra.

EXTRA = ("cmaes", "fastapi", "mlflow", "ray", "uvicorn")
"""What ``holdout-dml[search]`` installs beyond ``holdout-dml``, to run searches; see ``pyproject.toml``."""

INSTALL = "pip install 'holdout-dml[search]'"


def missing_packages(packages: Sequence[str] = EXTRA) -> list[str]:
    """Return those of ``packages`` that are not installed; nothing is imported."""
    return [package for package in packages if not _is_installed(package)]


def check_extra(what: str, packages: Sequence[str] = EXTRA) -> None:
    """Raise if ``packages`` of the extra are missing, which ``what`` needs, such as "Running a search"."""
    if missing := missing_packages(packages):
        raise InvalidInput(f"{what} needs packages that are not installed: {listed(missing)}; run `{INSTALL}`.")


def _is_installed(package: str) -> bool:
    try:
        found = find_spec(package)
    except ValueError:  # sys.modules holds None: importing it is forbidden
        return False
    return found is not None and found.origin is not None  # not just a folder of that name, such as our mlflow/
