"""The scores of each opening of the test classes: ``test.json``, which the test stage writes."""

from collections.abc import Mapping, Sequence
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
        metrics: value of each metric.
        in_small_galleries: objective on test galleries with as many classes as a validation gallery.
        per_image: name of the file with the per-image results.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str


class ScoredBaseline(_Stored):
    """A network without training on the test classes; the attributes are those of a :class:`ScoredModel`."""

    name: str
    metrics: Mapping[str, float]
    in_small_galleries: float | None
    per_image: str


class Look(_Stored):
    """A look at the test after ``seeds`` seeds; ``of`` are the numbers of seeds of all looks that were planned.

    The error of 5 % is divided among the looks before the first one: the last has three fifths, and the others share
    the rest. So with all looks together, some pair of a table is wrongly called different in at most 5 % of tables,
    whatever decides after which look the test ends.
    """

    seeds: int
    of: tuple[int, ...]

    @property
    def share(self) -> float:
        """The look's share of the error."""
        return share_of(self.seeds, self.of)

    @property
    def is_last(self) -> bool:
        """True if no look was planned after it."""
        return self.seeds == self.of[-1]


def share_of(seeds: int, of: Sequence[int]) -> float:
    """Return the share of the error that the look after ``seeds`` seeds has among the looks ``of``."""
    if len(of) == 1:
        return 1.0
    return 0.6 if seeds == of[-1] else 0.4 / (len(of) - 1)


class ScoredOpening(_Stored):
    """One opening: its ``id`` in the ledger, when it ``finished`` (seconds since 1970), and the models' scores.

    ``overlap`` is the number of test images that are images of the training half, too, and ``look`` the look of a test
    whose number of seeds is not fixed.
    """

    id: str
    finished: float
    overlap: int
    scores: tuple[ScoredModel, ...]
    baselines: tuple[ScoredBaseline, ...] = ()
    look: Look | None = None


class _TestFile(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """Return the openings stored at ``path``, in order; none while the test classes are sealed.

    Of the looks at a test only the last is returned, which has the models of all.
    """
    if not path.exists():
        return ()
    with reading(path):
        openings = _TestFile.model_validate_json(path.read_bytes()).openings
    looks = [opening for opening in openings if opening.look]
    return (*looks[-1:], *(opening for opening in openings if not opening.look))
