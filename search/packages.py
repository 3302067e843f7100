"""Holdout's packages: side by side in the repository, below ``holdout`` in an installed wheel (``setup.py``)."""

from pathlib import Path

IN_REPOSITORY = not __name__.startswith("holdout.")

PACKAGES = ("holdout", "search", "spaces", "trainables") if IN_REPOSITORY else ("holdout",)
"""The top-level packages."""

SEARCH = Path(__file__).parent
SPACES = SEARCH.with_name("spaces")
TRAINABLES = SEARCH.with_name("trainables")
HOLDOUT = SEARCH.with_name("holdout") if IN_REPOSITORY else SEARCH.parent

TOP = HOLDOUT.parent
"""The folder in which Python finds the top-level packages."""
