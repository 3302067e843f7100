"""Stages of a search, the names of their studies, and roles of configurations."""

from enum import StrEnum


class Stage(StrEnum):
    """The stages of a search, in order."""

    SEARCH = "search"
    SELECT = "select"
    TEST = "test"

    @property
    def trainings(self) -> str:
        """The name of its trials in studies and seeds: "confirm" for a selection, "final" for a test."""
        return {Stage.SELECT: "confirm", Stage.TEST: "final"}.get(self, self.value)


def short_study_name(loss: str, stage: Stage) -> str:
    """Return the name of a study without its search: ``mpa``, ``mpa@confirm``."""
    return loss if stage is Stage.SEARCH else f"{loss}@{stage.trainings}"


def study_name(search: str, loss: str, stage: Stage) -> str:
    """Return the name of a loss's study in a stage: ``birds/mpa@confirm``."""
    return f"{search}/{short_study_name(loss, stage)}"


def search_of(study: str) -> str:
    return study.partition("/")[0]


def loss_of(study: str) -> str:
    return study.partition("/")[2].partition("@")[0]


def trainings_of(study: str) -> str:
    return study.partition("@")[2] or Stage.SEARCH.trainings


UNTRAINED, WHITENED = BASELINES = ("untrained", "whitened")
"""The networks that are scored without training: the pooled features of the initial network, and these whitened."""


def baseline_phrase(name: str, *, of_vectors: bool) -> str:
    """Return what a sentence calls one of the baselines, of a network or of a data set of vectors."""
    if of_vectors:
        return {UNTRAINED: "the vectors as they are", WHITENED: "the whitened vectors"}[name]
    return f"the {name} network"


class Role(StrEnum):
    """The role of a row: the papers' default of a loss (trial 0), its tuned configuration, or one of the baselines."""

    DEFAULT = "default"
    TUNED = "tuned"
    BASELINE = "baseline"
