"""The scores of each opening of the test classes: ``test.json``, which the test stage writes."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from trainables.files import reading


class _Stored(BaseModel):
    """A part of the file; keys that a report does not need are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class ScoredModel(_Stored):
    """One trained model on the test classes.

    Attributes:
        loss: name of the loss.
        source_trial: trial of the search whose configuration was trained.
        seed: seed of the training.
        fold: fold of the training; None without folds.
        metrics: value of each metric; None if it is undefined.
        in_small_galleries: objective on test galleries with as many classes as a validation gallery.
        per_image: name of the file with the per-image results.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    metrics: Mapping[str, float | None]
    in_small_galleries: float | None
    per_image: str


class ScoredBaseline(_Stored):
    """A network without training on the test classes; the attributes are those of a :class:`ScoredModel`."""

    name: str
    metrics: Mapping[str, float | None]
    in_small_galleries: float | None
    per_image: str


class FailedScoring(_Stored):
    """A model that could not be scored: its loss and seed, or the name of a network without training, and why."""

    loss: str
    seed: int | None
    reason: str


class ScoredOpening(_Stored):
    """One opening: its ``id`` in the ledger, when it ``finished`` (seconds since 1970), and the models' scores.

    ``overlap`` is the number of test images that are images of the training half, too, and ``copies`` of those that
    have an equal one in the test set.
    """

    id: str
    finished: float
    overlap: int
    copies: int
    scores: tuple[ScoredModel, ...]
    baselines: tuple[ScoredBaseline, ...] = ()
    failed: tuple[FailedScoring, ...] = ()


class _TestFile(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """Return the openings stored at ``path``, in order; none while the test classes are sealed."""
    if not path.exists():
        return ()
    with reading(path):
        return _TestFile.model_validate_json(path.read_bytes()).openings
