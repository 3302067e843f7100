"""The per-image results of a test opening, summed by test class: what a bootstrap over classes resamples.

Shapes: N images, C test classes.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.plan.runs import RunFolder


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """One training's scores: their sum and number by class, and the digest of the images, by name and class.

    Where folds were trained, it is the mean over the models of all of a seed's folds, which share the seed and the
    test classes: they are one draw and not several.
    """

    loss: str
    configuration: int
    seed: int
    sums_C: NDArray[np.float64]
    counts_C: NDArray[np.int64]
    images: str


def class_scores(folder: RunFolder, metric: str) -> list[ClassScores]:
    """The scores of every seed in a search's first opening; none where the test classes are sealed.

    A seed of which a fold has no model is left out: the folds that are left may be the easy ones.

    Raises:
        FileNotFoundError: the per-image results are gone.
    """
    models: dict[tuple[str, int, int], list[ClassScores]] = {}
    for row, path in _results(folder):
        entry = _class_scores(row, path, metric)
        models.setdefault((entry.loss, entry.configuration, entry.seed), []).append(entry)
    folds = max(map(len, models.values()), default=0)
    return [
        replace(of_seed[0], sums_C=np.mean([entry.sums_C for entry in of_seed], axis=0))
        for of_seed in models.values()
        if len(of_seed) == folds
    ]


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
