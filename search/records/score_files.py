"""Requests to score models, and stored scores.

These are ``baselines.json``, those of networks without training, and ``test.json``, those of the openings.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from search.records.ledger import Opening
from search.stages import UNTRAINED, WHITENED
from trainables.common.errors import InvalidInput
from trainables.common.files import digest_of, json_digest, read_json, reading, write_json, write_whole
from trainables.data.store.store_spec import StoreSpec
from trainables.training.spec import TrialSpec, UntrainedSpec, ValidatedUntrained

# The networks that are scored without training, on the validation classes.


def validate_untrained(spec: UntrainedSpec) -> ValidatedUntrained:
    """Score the initial network on the validation classes, on a worker; the driver does not import torch for it."""
    from trainables.training.untrained_network import validate

    return validate(spec)


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The content of ``baselines.json``.

    Attributes:
        network: digest of the initial backbone with its weights and pooling.
        loaded: a sentence on what its file of weights held, if it has one.
        validation: metrics of each baseline on the validation classes.
        classes: objective of each baseline on each class that validates in the confirmation.
    """

    network: str
    loaded: str | None
    dimensions: int
    validation: Mapping[str, Mapping[str, float | None]]
    classes: Mapping[str, Mapping[str, float]]
    whitening_sha256: str

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the content, which the selection freezes."""
        return json_digest(asdict(self))

    @classmethod
    def load(cls, path: Path) -> "Baselines | None":
        """Read the file at ``path``; None if it does not exist."""
        if not path.exists():
            return None
        with reading(path):
            content = read_json(path)
            _ = [content[part][name].items() for part in ("validation", "classes") for name in (UNTRAINED, WHITENED)]
            return cls(**content)


def save_baselines(path: Path, whitening: Path, validated: ValidatedUntrained) -> Baselines:
    """Write the ``whitening`` and then the file of the scores at ``path``, which is complete if it exists."""
    write_whole(whitening, methodcaller("write", validated.whitening))
    stored = {name: value for name, value in vars(validated).items() if name != "whitening"}
    found = Baselines(**stored, whitening_sha256=digest_of(validated.whitening))
    write_json(path, asdict(found))
    return found


def frozen_baselines(path: Path, whitening: Path, digest: str | None) -> tuple[Baselines, bytes] | None:
    """Return the baselines at ``path`` with the content of the file ``whitening``; None if the selection has none.

    Raises:
        InvalidInput: a file is missing, or not the one whose ``digest`` was frozen with the choice.
    """
    if digest is None:
        return None
    found = Baselines.load(path)
    if found is None or found.digest != digest:
        what = "is missing" if found is None else "was changed (its digest does not match)"
        raise InvalidInput(f"{path} {what} since the choice was frozen; restore it, or search under a new name.")
    content = whitening.read_bytes() if whitening.is_file() else b""
    if digest_of(content) != found.whitening_sha256:
        what = "was changed (its digest does not match)" if content else "is missing"
        raise InvalidInput(f"{whitening} {what} since the choice was frozen; restore it, or search under a new name.")
    return found, content


# Requests to score models, which a worker answers.


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A request to score a model (``checkpoint``, trained as in ``spec``) on ``images``.

    ``seed`` is that of the final training, shared by the models of its folds; ``fold`` is None without folds.
    ``per_image`` is the file with the per-image results, ``gpu`` True if the task has a GPU.
    """

    loss: str
    source_trial: int
    seed: int
    fold: int | None
    spec: TrialSpec
    checkpoint: str
    images: StoreSpec
    metrics: tuple[str, ...]
    per_image: str
    gpu: bool

    @property
    def row(self) -> dict[str, Any]:
        """The part of its entry in ``test.json`` that follows from the trial."""
        return {name: getattr(self, name) for name in ("loss", "source_trial", "seed", "fold", "per_image")}


@dataclass(frozen=True, kw_only=True)
class BaselineScoring:
    """A request to score the baselines on ``images``; ``spec`` and ``network`` are those of their validation."""

    spec: UntrainedSpec
    network: str
    whitening: bytes
    images: StoreSpec
    metrics: tuple[str, ...]
    gpu: bool


def baseline_entry(name: str, network: str, whitening_sha256: str) -> dict[str, Any]:
    """Return the part of a baseline's entry in ``test.json`` that follows from its validation."""
    digest = whitening_sha256 if name == WHITENED else None
    return {"name": name, "network": network, "whitening_sha256": digest, "per_image": f"{name}@baseline.npz"}


# The openings of the test classes by a search, with the scores of each model.


class _Stored(BaseModel):
    """A part of the file. Keys without a field are kept: they are part of what the digest covers."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    def content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


class _Scored(_Stored):
    """The scores of a network on the test classes, and the name of its file of per-image results.

    An undefined metric is None, and one of the user's has its reason in ``undefined``.
    """

    metrics: Mapping[str, float | None]
    per_image: str
    undefined: Mapping[str, str] = {}


class ScoredBaseline(_Scored):
    """A network without training on the test classes."""

    name: str


class ScoredModel(_Scored):
    """One trained model on the test classes; ``source_trial`` is the trial of the search whose params it has."""

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


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What came of scoring a model or a network without training: its record, and its ``files`` by name.

    ``is_repairable`` is True if it failed and another attempt may succeed.
    """

    record: ScoredModel | ScoredBaseline | FailedScoring
    files: Mapping[str, bytes] = field(default_factory=dict)
    is_repairable: bool = False


class ScoredOpening(_Stored):
    """One opening: the entry of the ledger, and the models' scores.

    Attributes:
        id: its name in the ledger.
        studies: the digests of the studies of final trainings, by name.
        finished: when it was scored, in seconds since 1970.
        overlap: the number of test images that are images of the training half, too.
        copies: the number of test images that have an equal one in the test set.
        files: the digests of the files of the opening, by name.
        vault: the key of the vault that scored it, the opening's number there and what the vault says; else empty.
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
    vault: Mapping[str, Any] = {}
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
