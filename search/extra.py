"""The extra ``search``: the packages that run searches, and that a plain installation does without."""

from collections.abc import Sequence
from importlib.util import find_spec

from trainables.errors import InvalidInput, listed

PACKAGES = ("cmaes", "fastapi", "mlflow", "ray", "uvicorn")
"""What ``holdout-dml[search]`` installs beyond ``holdout-dml``, see ``pyproject.toml``."""

INSTALL = "pip install 'holdout-dml[search]'"


def missing_packages(packages: Sequence[str] = PACKAGES) -> list[str]:
    """Return those of ``packages`` that are not installed; nothing is imported."""
    return [package for package in packages if not _is_installed(package)]


def check_extra(what: str, packages: Sequence[str] = PACKAGES) -> None:
    """Check that ``packages`` are installed.

    Args:
        what: what needs them, such as "Running a search"; the sentence begins with it.
        packages: packages of the extra, by default all of them.

    Raises:
        InvalidInput: some are missing.
    """
    if missing := missing_packages(packages):
        raise InvalidInput(f"{what} needs packages that are not installed: {listed(missing)}; run `{INSTALL}`.")


def _is_installed(package: str) -> bool:
    try:
        found = find_spec(package)
    except ValueError:  # sys.modules holds None: importing it is forbidden
        return False
    return found is not None and found.origin is not None  # not just a folder of that name, such as our mlflow/
