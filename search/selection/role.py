"""The two configurations of a loss that go from the search to the test."""

from enum import StrEnum


class Role(StrEnum):
    """The papers' default (trial 0), and the configuration that the search chose."""

    DEFAULT = "default"
    TUNED = "tuned"
