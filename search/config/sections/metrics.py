"""The ``metrics`` section: what is computed, and when."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from search.config.names import known_metric
from search.config.sections.section import Section

Metric = Annotated[str, AfterValidator(known_metric)]
Metrics = Annotated[tuple[Metric, ...], Field(min_length=1)]


class MetricsSection(Section):
    """What each epoch's validation and what the sealed test computes."""

    validation: Metrics = ("recall_at_1", "map_at_r")
    test: Literal["all"] | Metrics = "all"
