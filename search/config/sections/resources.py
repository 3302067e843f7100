"""The ``resources`` section: what one trial occupies."""

from pydantic import Field

from search.config.sections.section import Section


class ResourcesSection(Section):
    """What one trial occupies."""

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float = Field(default=0, ge=0)
