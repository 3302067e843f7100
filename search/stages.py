"""Stages of a search, roles of a configuration, and the names of the studies that hold their trials."""

from enum import StrEnum
from typing import Literal

# The stages of a search, and how the studies that hold their trials are called.


class Stage(StrEnum):
    """What a search goes through, in this order; the noise stage only where it is asked for.

    The audit of the pruning belongs to the search, which is done when it is; its trials have studies of their own.
    """

    NOISE = "noise"
    SEARCH = "search"
    AUDIT = "audit"
    SELECT = "select"
    TEST = "test"

    @property
    def trainings(self) -> str:
        """What its trials are called in names and seeds: a selection confirms, a test has final trainings."""
        return {Stage.SELECT: "confirm", Stage.TEST: "final"}.get(self, self.value)


def short_study_name(loss: str, stage: Stage) -> str:
    """The name of a loss's study in a stage below the search's: ``mpa``, ``mpa@confirm``."""
    return loss if stage is Stage.SEARCH else f"{loss}@{stage.trainings}"


def study_name(search: str, loss: str, stage: Stage) -> str:
    """The name of a loss's study in a stage: ``birds/mpa@confirm``."""
    return f"{search}/{short_study_name(loss, stage)}"


def search_of(study: str) -> str:
    """The search that the study of this name belongs to."""
    return study.partition("/")[0]


def loss_of(study: str) -> str:
    """The loss that the study of this name is of."""
    return study.partition("/")[2].partition("@")[0]


def trainings_of(study: str) -> str:
    """What the trials of the study of this name are called, as :attr:`Stage.trainings` does."""
    return study.partition("@")[2] or Stage.SEARCH.trainings


# The two configurations of a loss that go from the search to the test.


class Role(StrEnum):
    """The papers' default (trial 0), and the configuration that the search chose."""

    DEFAULT = "default"
    TUNED = "tuned"


Rule = Literal["halving", "mean"]
