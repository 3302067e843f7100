"""Contract tests of parts, built-in or user-defined, as `holdout check` runs them."""

from collections.abc import Callable

Check = Callable[[], str]
"""A check returns a sentence that describes the problem, or an empty string."""
