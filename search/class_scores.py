"""The per-image results of a test opening, summed by test class: what a bootstrap over classes resamples.

Shapes: N images, C test classes.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.runs import RunFolder


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """One model's scores: their sum and number by class, and the digest of the images, by name and class."""

    loss: str
    configuration: int
    seed: int
    sums_C: NDArray[np.float64]
    counts_C: NDArray[np.int64]
    images: str


def class_scores(folder: RunFolder, metric: str) -> list[ClassScores]:
    """The scores of every model of a search's first opening; none where the test classes are sealed.

    Raises:
        FileNotFoundError: the per-image results are gone.
    """
    return [_class_scores(row, path, metric) for row, path in _results(folder)]


def per_image_metrics(folders: Iterable[RunFolder]) -> set[str]:
    """The metrics that every model of every search was scored by, image by image."""
    found: list[set[str]] = []
    for folder in folders:
        for _, path in _results(folder):
            with np.load(path) as content:
                found.append(set(content.files))
    return set.intersection(*found)


def _results(folder: RunFolder) -> list[tuple[dict[str, Any], Path]]:
    if not folder.test.exists():
        return []
    opening = json.loads(folder.test.read_text())["openings"][0]
    return [(row, folder.path / "test" / opening["id"] / row["per_image"]) for row in opening["scores"]]


def _class_scores(row: dict[str, Any], path: Path, metric: str) -> ClassScores:
    with np.load(path) as content:
        labels_N, keys_N, scores_N = content["labels"], content["keys"], content[metric]
    classes_N = np.unique(labels_N, return_inverse=True)[1]
    return ClassScores(
        loss=row["loss"],
        configuration=row["configuration"],
        seed=row["seed"],
        sums_C=np.bincount(classes_N, weights=scores_N).astype(np.float64),
        counts_C=np.bincount(classes_N),
        images=hashlib.sha256(labels_N.tobytes() + "\n".join(keys_N.tolist()).encode()).hexdigest(),
    )
