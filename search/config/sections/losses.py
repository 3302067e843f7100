"""The ``losses`` section: which losses are searched."""

from typing import Annotated

from pydantic import AfterValidator, Field

from search.config.names import known_name, unique
from trainables.losses import LOSSES


def _known_loss(name: str) -> str:
    return known_name(name, LOSSES)


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    unique(names)
    return names


Loss = Annotated[str, AfterValidator(_known_loss)]
Losses = Annotated[tuple[Loss, ...], Field(min_length=1), AfterValidator(_unique)]
