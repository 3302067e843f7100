"""What all results have in common: they are frozen, and their JSON has the same names."""

from pydantic import BaseModel, ConfigDict


class Result(BaseModel):
    """A frozen result. ``model_dump(mode="json")`` is its JSON; an unknown name is an error when it is read or made."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
