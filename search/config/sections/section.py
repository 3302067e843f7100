"""What every section of the search file is made of."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from search.config.secrets import without_a_password


class Section(BaseModel):
    """A part of the search file: frozen, exact types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False, serialize_by_alias=True)


MOST_SPLITS = 100
"""Further splits are all made before a search begins."""

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Address = Annotated[str, Field(min_length=1), AfterValidator(without_a_password)]
"""An address whose password, if it has one, is a reference such as ``${DATABASE_PASSWORD}``."""
