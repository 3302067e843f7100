"""The ``dataset`` section: which images."""

import os
from functools import cached_property

from pydantic import ConfigDict, Field, field_validator, model_validator

from search.config.parts.dataset import build_dataset
from search.config.sections.section import Section
from trainables.data import Dataset


class DatasetSection(Section):
    """The images. Further keys are options of the data set named.

    ``name`` is a row of ``DATASETS`` or the import path of your own, whose code is then run.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True, ignored_types=(cached_property,))

    name: str
    root: str | None = None
    store_size: int = Field(default=256, ge=8)
    cache: str | None = None

    @field_validator("root", "cache")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        # The resolved file must mean the same from wherever it is resumed.
        return None if path is None else os.path.abspath(os.path.expanduser(path))

    @model_validator(mode="after")
    def _buildable(self) -> "DatasetSection":
        _ = self.source
        return self

    @cached_property
    def source(self) -> Dataset:
        """The data set itself."""
        options = dict(self.model_extra or {})
        if self.root is not None:
            options["root"] = self.root
        return build_dataset(self.name, options)
