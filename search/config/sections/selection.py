"""The ``selection`` and ``final`` sections: what is trained after the search."""

from typing import Literal

from pydantic import Field

from search.config.sections.section import Section

Rule = Literal["halving", "mean"]


class SelectionSection(Section):
    """How the best configuration of a loss is confirmed: ``seeds`` trainings a finalist, shared out by ``rule``.

    See :mod:`search.selection.choice`.
    """

    finalists: int = Field(default=3, ge=1)
    seeds: int = Field(default=2, ge=1)
    rule: Rule = "halving"


class FinalSection(Section):
    """How the chosen configurations are trained before the test."""

    seeds: int = Field(default=3, ge=1)
    train_on: Literal["train", "all"] = "train"
