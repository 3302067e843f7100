"""The ``metrics`` section: what is computed, and when."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from search.config.names import known_metric
from search.config.sections.section import Section

Metric = Annotated[str, AfterValidator(known_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]


Gallery = Literal["validation", "training_half"]


class MetricsSection(Section):
    """What each epoch's validation and what the sealed test computes.

    The images of the validation classes are ranked among each other, or with ``training_half`` among half of the
    training images too (:mod:`trainables.data.training_half`, with the split's seed).
    """

    validation: Metrics = ("recall_at_1", "map_at_r")
    gallery: Gallery = "validation"
    test: Literal["all"] | Metrics = "all"
