"""The networks that are scored without training: their stored validation, and the request to score them in the test.

Importing this module does not import torch.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

from search.stages import UNTRAINED, WHITENED
from trainables.data.store.spec import StoreSpec
from trainables.errors import InvalidInput
from trainables.files import json_digest, read_json, reading, write_json, write_whole
from trainables.spec import UntrainedSpec, ValidatedUntrained


def validate_untrained(spec: UntrainedSpec) -> ValidatedUntrained:
    """Score the initial network on the validation classes, on a worker; the driver does not import torch for it."""
    from trainables.training.untrained import validate

    return validate(spec)


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The content of ``baselines.json``.

    Attributes:
        network: the digest of the initial backbone with its weights and pooling.
        loaded: a sentence that says what its file of weights held, if it has one.
        validation: for each baseline its metrics on the validation classes.
        classes: for each baseline the objective of each class that validates in the confirmation.
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
    found = Baselines(
        network=validated.network,
        loaded=validated.loaded,
        dimensions=validated.dimensions,
        validation={UNTRAINED: validated.untrained, WHITENED: validated.whitened},
        classes={UNTRAINED: validated.classes_untrained, WHITENED: validated.classes_whitened},
        whitening_sha256=hashlib.sha256(validated.whitening).hexdigest(),
    )
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
    if hashlib.sha256(content).hexdigest() != found.whitening_sha256:
        what = "was changed (its digest does not match)" if content else "is missing"
        raise InvalidInput(f"{whitening} {what} since the choice was frozen; restore it, or search under a new name.")
    return found, content


@dataclass(frozen=True, kw_only=True)
class BaselineScoring:
    """The request to score the baselines on ``images``; ``spec`` and ``network`` are those of their validation.

    ``whitening`` is the content of the whitening's file, ``gallery`` as in :class:`Scoring`, and ``objective`` the
    metric that is also measured in test galleries of that size.
    """

    spec: UntrainedSpec
    network: str
    whitening: bytes
    images: StoreSpec
    metrics: tuple[str, ...]
    objective: str
    gallery: int | None


def baseline_entry(name: str, network: str, whitening_sha256: str) -> dict[str, Any]:
    """Return the part of a baseline's entry in ``test.json`` that follows from its validation."""
    return {
        "name": name,
        "network": network,
        "whitening_sha256": whitening_sha256 if name == WHITENED else None,
        "per_image": f"{name}@baseline.npz",
    }
