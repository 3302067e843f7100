"""The ``noise`` section: how much of a result is chance."""

from typing import Any, Literal

from pydantic import Field

from search.config.sections.section import MOST_SPLITS, Section


class NoiseSection(Section):
    """What the noise stage trains: one configuration with several seeds, and on other class splits with the first.

    ``configuration`` is ``default``, the papers', or values that differ from it. ``loss=None`` is the first one.
    """

    loss: str | None = None
    configuration: Literal["default"] | dict[str, Any] = "default"
    seeds: int = Field(default=5, ge=2)
    splits: int = Field(default=0, ge=0, le=MOST_SPLITS)
