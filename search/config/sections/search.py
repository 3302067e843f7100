"""The ``search`` section: how hyperparameters are searched."""

from pydantic import Field, field_validator, model_validator

from search.config.names import known_metric, known_name, plain_name
from search.config.sections.section import Address, Section
from search.study.pruners import PRUNERS
from search.study.samplers.table import SAMPLERS
from trainables.mistakes import Mistakes


class SearchSection(Section):
    """How hyperparameters are searched: at most ``trials`` a loss, and no more than fit in its budget of ``epochs``.

    With ``from``, which is :attr:`origin` here, the search begins with the trials of another one in the same runs
    folder, and they count as its own. ``audit`` pruned trials of each loss are trained to their end afterwards, to see
    what pruning was worth; the choice knows nothing of them. ``prior`` is the share of the trials that are drawn around
    the papers' default and not by the sampler.
    """

    origin: str | None = Field(default=None, alias="from")
    trials: int = Field(default=16, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    sampler: str = "tpe"
    prior: float = Field(default=0, ge=0, le=1)
    pruner: str = "asha"
    objective: str = "map_at_r"
    audit: int = Field(default=0, ge=0)
    seed: int = 0
    max_concurrent: int | None = Field(default=None, ge=1)
    storage: Address | None = None

    @field_validator("origin")
    @classmethod
    def _plain_origin(cls, name: str | None) -> str | None:
        return None if name is None else plain_name(name)

    @field_validator("sampler")
    @classmethod
    def _known_sampler(cls, name: str) -> str:
        return known_name(name, SAMPLERS)

    @field_validator("pruner")
    @classmethod
    def _known_pruner(cls, name: str) -> str:
        return known_name(name, PRUNERS)

    @field_validator("objective")
    @classmethod
    def _known_metric(cls, name: str) -> str:
        return known_metric(name)

    @model_validator(mode="after")
    def _works_beside_the_pruner(self) -> "SearchSection":
        reason = SAMPLERS[self.sampler].without_pruning
        if reason and self.pruner != "none":
            raise Mistakes(
                f"sampler {self.sampler} {reason}; set pruner to none (it is {self.pruner}) or sampler to tpe."
            )
        return self

    @model_validator(mode="after")
    def _has_room_for_the_prior(self) -> "SearchSection":
        if self.prior and SAMPLERS[self.sampler].in_order:
            raise Mistakes(
                f"sampler {self.sampler} goes over steps one after the other, and no draws around the default can be "
                f"among them; set prior to 0 (it is {self.prior:g}) or sampler to tpe."
            )
        return self
