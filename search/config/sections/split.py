"""The ``split`` section: which training classes validate."""

from pydantic import Field, model_validator

from search.config.sections.section import Section
from trainables.mistakes import Mistakes


class SplitSection(Section):
    """Which training classes validate: a fixed part of them, or all of them in turn, in ``folds``.

    Every ``merge`` consecutive classes that train are learned as one.
    """

    ratio: float = Field(default=0.9, gt=0, lt=1)
    seed: int = 0
    folds: int | None = Field(default=None, ge=2)
    merge: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _one_protocol(self) -> "SplitSection":
        if self.folds is not None and self.ratio != SplitSection.model_fields["ratio"].default:
            raise Mistakes(
                f"folds is {self.folds} and ratio {self.ratio}; each fold validates on its own part of the classes, "
                "so leave the ratio out, or folds null for one fixed part."
            )
        return self
