"""The sections of the stages: search, select, test and noise."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from search.config.names import allowed_measure, allowed_objective
from search.config.sections import MOST_SPLITS, Address, ConfigSection, Metric
from search.config.tables import PRUNERS, SAMPLERS
from search.goal import bound_text
from trainables.errors import InvalidInput, raise_if_any
from trainables.rules import Bounds, OneOf
from trainables.spec import COSTS

Objectives = Annotated[tuple[Annotated[str, AfterValidator(allowed_objective)], ...], Field(min_length=1)]
Constraints = dict[Annotated[str, AfterValidator(allowed_measure)], Annotated[str, AfterValidator(bound_text)]]


class SearchSection(ConfigSection):
    """The search of each loss: at most ``trials`` trials, within a budget of ``epochs`` or ``hours``.

    Hours are those of its trials, one after the other.
    """

    trials: Annotated[int, Bounds(ge=1)] = 16
    """The number of trials of each loss, the default among them. May be raised at any time."""
    epochs: Annotated[int | None, Bounds(ge=1)] = None
    """The budget of each loss in epochs, all its trials together; null: unlimited. Example: 200."""
    hours: Annotated[float | None, Bounds(gt=0)] = None
    """The budget of each loss in hours of its trials, one after the other; null: unlimited. Example: 12."""
    budget: Literal["each", "together"] = "each"
    """What `epochs` and `hours` are for: each loss, or all losses together, which get equal shares."""
    sampler: Annotated[str, OneOf(SAMPLERS)] = "tpe"
    """The method that proposes trials."""
    pruner: Annotated[str, OneOf(PRUNERS)] = "asha"
    """The rule that ends bad trials early."""
    objective: Metric = "map_at_r"
    """The metric on the validation classes that ranks trials. Example: recall_at_1."""
    objectives: Objectives | None = None
    """Several metrics to optimise at once, a minus before those to minimise; the first one is the `objective`. The
    configuration nearest to the best values of all is chosen.
    `embed_ms` and `size_mb` are milliseconds per item and megabytes of the model. Example: [map_at_r, -embed_ms].
    """
    constraints: Constraints = Field(default_factory=dict)
    """What a chosen configuration must meet: bounds of metrics, `embed_ms` or `size_mb`. Example: {embed_ms: "< 5"}."""
    seed: int = 0
    """The seed of all trials and proposals."""
    max_concurrent: Annotated[int | None, Bounds(ge=1)] = None
    """The maximum of trials at once; null: as many as the resources allow. Example: 4."""
    storage: Address | None = None
    """The database of the studies; null: a file in the search's folder. Example:
    "postgresql+psycopg://user:${DATABASE_PASSWORD}@host/optuna".
    """

    @model_validator(mode="before")
    @classmethod
    def _first_objective(cls, content: Any) -> Any:
        """Set the objective, if the file leaves it out, to the first of the objectives."""
        objectives = content.get("objectives") if isinstance(content, Mapping) else None
        if not isinstance(objectives, list) or not objectives:
            return content
        if (first := str(objectives[0])).startswith("-") or first in COSTS:
            raise InvalidInput(
                "the first of objectives ranks the epochs of a training, so it is a metric that is maximised, and it "
                f"is {first}; put such a metric first."
            )
        # What a validator returns is no longer JSON, where pydantic takes a list for a tuple.
        return {"objective": objectives[0], **content, "objectives": tuple(objectives)}

    @model_validator(mode="after")
    def _keys_fit(self) -> "SearchSection":
        raise_if_any([*self._mistakes()])
        return self

    def _mistakes(self) -> Iterator[str]:
        sampler = SAMPLERS[self.sampler]
        if sampler.without_pruning and self.pruner != "none":
            yield (
                f"sampler {self.sampler} {sampler.without_pruning}; set pruner to none (it is {self.pruner}) or "
                "sampler to tpe."
            )
        if self.budget == "together" and (self.epochs, self.hours) == (None, None):
            yield "budget is together, but there is no budget to share; set epochs or hours, or leave it out."
        first, *others = self.objectives or (self.objective,)
        if self.objectives and not others:
            yield f"objectives has one metric alone, {first}; set objective to it instead."
        if first != self.objective:
            yield f"objective is {self.objective}, and the first of objectives {first}; leave objective out."
        metrics = [entry.removeprefix("-") for entry in (first, *others)]
        if repeated := sorted({name for name in metrics if metrics.count(name) > 1}):
            yield f"objectives: {', '.join(repeated)} is given more than once; keep one of each."
        if others and self.pruner != "none":
            yield f"pruner {self.pruner} compares trials by one metric, and there are objectives; set pruner to none."
        if (others or self.constraints) and sampler.one_metric:
            yield (
                f"sampler {self.sampler} compares trials by one metric, and there are "
                f"{'objectives' if others else 'constraints'}; set sampler to tpe, gp, random, qmc or grid."
            )


class SelectionSection(ConfigSection):
    """The confirmation of a loss's best configurations, of which one is chosen. See :mod:`search.selection.choice`."""

    finalists: Annotated[int, Bounds(ge=1)] = 3
    """The number of configurations of each loss that are trained again, with fresh seeds; the default always is."""
    on: Literal["auto", "halves", "split"] = "auto"
    """The classes that confirm: with `halves` each half of all training classes validates a model of the other half,
    with `split` the validation classes of the search do so again; `auto` is `halves` if fewer than 20 classes validate.
    """
    better_by: Annotated[float, Bounds(ge=0)] = 1.0
    """The number of standard errors over classes by which a finalist must be better than the default to be chosen."""
    seeds: Annotated[int | None, Bounds(ge=1)] = None
    """The number of fresh seeds of a finalist; null: one on halves, where it trains two models, otherwise two. Example:
    2.
    """


TrainOn = Literal["train", "all"]
"""The classes that train: those that do not validate, or all training classes."""


class FinalSection(ConfigSection):
    """The trainings of the chosen configurations before the test."""

    seeds: Annotated[int, Bounds(ge=1)] = 3
    """The number of final trainings of each configuration, whose models are tested."""
    train_on: TrainOn = "train"
    """The classes of the final trainings: those that do not validate, or `all` training classes, for the median of the
    best epochs.
    """
    test: Literal["always", "if_better"] = "always"
    """When the test is opened: `if_better` leaves it sealed if no loss is better than a network without training."""
    within: Annotated[float | None, Bounds(gt=0)] = None
    """The margin of equivalence, in points of the metric: two rows whose difference has an interval within it are the
    same. It is frozen with the choice; null: no rows are. Example: 1.0.
    """


class NoiseSection(ConfigSection):
    """The noise stage: one configuration with ``seeds`` seeds, and with the first seed on ``splits`` other splits."""

    loss: str | None = None
    """The loss that is measured; null: the first one. Example: mpa."""
    configuration: Literal["default"] | dict[str, Any] = "default"
    """The configuration that is measured: `default`, or the values that differ from it. Example: {margin: 0.2}."""
    seeds: Annotated[int, Bounds(ge=2)] = 5
    """The number of seeds."""
    splits: Annotated[int, Bounds(ge=0, le=MOST_SPLITS)] = 0
    """The number of further splits on which the first seed is trained."""
