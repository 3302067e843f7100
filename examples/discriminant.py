"""A user-defined training with scikit-learn: linear discriminant analysis of embeddings.

holdout run examples/discriminant.yaml --set dataset.file=mine.npz
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import holdout


class Discriminant(holdout.EstimatorTrainable):
    """Directions between the training classes, relative to the scatter within them."""

    space: ClassVar[Mapping[str, Any]] = {
        "shrinkage": holdout.Float(0.0, 1.0, default=0.1),
        "normalised": holdout.Choice((True, False), default=True),
    }

    def estimator(self, params: Mapping[str, Any], *, seed: int) -> Any:
        analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage=params["shrinkage"])
        return make_pipeline(Normalizer(), analysis) if params["normalised"] else analysis
