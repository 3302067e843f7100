"""``test.json``: the scores of each opening of the test classes, as far as a report reads them."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trainables.files.whole import reading


class _Stored(BaseModel):
    """A part of the file, which the test stage writes; it holds more than a report reads."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ScoredModel(_Stored):
    """One trained model on the test classes.

    ``configuration`` is the trial that was trained again with ``seed``, on this ``fold`` where there are folds;
    ``per_image`` is the file of its per-image results. ``in_small_galleries`` is the objective among as many test
    classes as validate.
    """

    loss: str
    configuration: int
    seed: int
    fold: int | None
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str


class ScoredOpening(_Stored):
    """One opening: its ``id`` in the ledger, when it was ``finished`` (seconds since 1970), and the models' scores."""

    id: str
    finished: float
    scores: tuple[ScoredModel, ...]


class _File(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """The openings stored at ``path``, in order; none where the test classes are sealed."""
    if not path.exists():
        return ()
    with reading(path):
        return _File.model_validate_json(path.read_bytes()).openings
