"""The ``selection`` and ``final`` sections: what is trained after the search."""

from typing import Literal

from pydantic import Field, model_validator

from search.config.sections.section import MOST_SPLITS, Section
from trainables.mistakes import Mistakes

Rule = Literal["halving", "mean"]


class SelectionSection(Section):
    """How the best configuration of a loss is confirmed: ``seeds`` trainings a finalist, shared out by ``rule``.

    They validate in turn on ``splits`` splits of the training classes, of which the first is the search's own. See
    :mod:`search.selection.choice`.
    """

    finalists: int = Field(default=3, ge=1)
    seeds: int = Field(default=2, ge=1)
    rule: Rule = "halving"
    splits: int = Field(default=1, ge=1, le=MOST_SPLITS)

    @model_validator(mode="after")
    def _a_seed_a_split(self) -> "SelectionSection":
        if self.splits > self.seeds:
            raise Mistakes(
                f"splits is {self.splits} and seeds {self.seeds}; the trainings of a finalist validate on the splits "
                f"in turn, so set seeds to at least {self.splits}, or splits to {self.seeds} or less."
            )
        return self


class FinalSection(Section):
    """How the chosen configurations are trained before the test."""

    seeds: int = Field(default=3, ge=1)
    train_on: Literal["train", "all"] = "train"
