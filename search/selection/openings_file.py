"""``test.json``: the openings of the test classes by a search, with the scores of each model."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from search.selection.ledger import Opening
from trainables.files import json_digest, reading, write_json


class _Stored(BaseModel):
    """A part of the file. Keys without a field are kept: they are part of what the digest covers."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    def content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class _Scored(_Stored):
    """The scores of a network on the test classes; see :class:`ScoredModel`."""

    metrics: Mapping[str, float | None]
    in_small_galleries: float | None
    per_image: str
    undefined: Mapping[str, str] = {}


class ScoredBaseline(_Scored):
    """A network without training on the test classes; the attributes are those of a :class:`ScoredModel`."""

    name: str


class ScoredModel(_Scored):
    """One trained model on the test classes.

    Attributes:
        source_trial: trial of the search whose configuration was trained.
        fold: fold of the training; None without folds.
        metrics: value of each metric; None if it is undefined.
        in_small_galleries: objective on test galleries with as many classes as a validation gallery.
        per_image: name of the file with the per-image results.
        undefined: why metrics of the user's are undefined, by name.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    model_sha256: str


class FailedScoring(_Stored):
    """A model that could not be scored: its loss and seed, or the name of a network without training, and why."""

    loss: str
    seed: int | None
    per_image: str
    reason: str


class ScoredOpening(_Stored):
    """One opening: the entry of the ledger, and the models' scores.

    Attributes:
        id: its name in the ledger.
        studies: the digests of the studies of final trainings, by name.
        finished: when it was scored, in seconds since 1970.
        overlap: the number of test images that are images of the training half, too.
        copies: the number of test images that have an equal one in the test set.
        files: the digests of the files of the opening, by name.
        digest: that of everything else in the record.
    """

    id: str
    studies: Mapping[str, str]
    finished: float
    overlap: int
    copies: int
    scores: tuple[ScoredModel, ...]
    baselines: tuple[ScoredBaseline, ...] = ()
    failed: tuple[FailedScoring, ...] = ()
    files: Mapping[str, str]
    digest: str = ""

    @classmethod
    def of(cls, opening: Opening, **parts: Any) -> "ScoredOpening":
        """Return the record of an ``opening``, with its digest; ``parts`` are the other attributes as JSON."""
        record = cls.model_validate_json(json.dumps({**opening.entry, **parts}))
        return record.model_copy(update={"digest": record.digest_of_content()})

    def digest_of_content(self) -> str:
        """Return the SHA-256 of the record without its digest."""
        return json_digest({key: value for key, value in self.content().items() if key != "digest"})


class _TestFile(_Stored):
    openings: tuple[ScoredOpening, ...]


def scored_openings(path: Path) -> tuple[ScoredOpening, ...]:
    """Return the openings stored at ``path``, in order; none while the test classes are sealed."""
    if not path.exists():
        return ()
    with reading(path):
        return _TestFile.model_validate_json(path.read_bytes()).openings


def write_openings(path: Path, openings: Sequence[ScoredOpening]) -> None:
    write_json(path, {"openings": [opening.content() for opening in openings]})
