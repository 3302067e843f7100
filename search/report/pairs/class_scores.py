"""The per-image results of a test opening, summed by test class: what differences are tested on.

Shapes: N images, C test classes.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.plan.runs import RunFolder
from search.report.results.scored_openings import ScoredModel, scored_openings
from trainables.files.whole import reading


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
    for model, path in _models(folder):
        entry = _class_scores(model, path, metric)
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
        for _, path in _models(folder):
            with reading(path), np.load(path) as content:
                found.append(set(content.files))
    return set.intersection(*found)


def _models(folder: RunFolder) -> list[tuple[ScoredModel, Path]]:
    """The models of the first opening, each with the file of its per-image results."""
    return [
        (model, folder.path / "test" / opening.id / model.per_image)
        for opening in scored_openings(folder.test)[:1]
        for model in opening.scores
    ]


def _class_scores(model: ScoredModel, path: Path, metric: str) -> ClassScores:
    with reading(path), np.load(path) as content:
        labels_N, keys_N, scores_N = content["labels"], content["keys"], content[metric]
    of_N = ~np.isnan(scores_N)  # a metric of a part of the test classes has scores of its images alone
    labels_N, keys_N, scores_N = labels_N[of_N], keys_N[of_N], scores_N[of_N]
    classes_N = np.unique(labels_N, return_inverse=True)[1]
    return ClassScores(
        loss=model.loss,
        configuration=model.configuration,
        seed=model.seed,
        sums_C=np.bincount(classes_N, weights=scores_N).astype(np.float64),
        counts_C=np.bincount(classes_N),
        images=hashlib.sha256(labels_N.tobytes() + "\n".join(keys_N.tolist()).encode()).hexdigest(),
    )
