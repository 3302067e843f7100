"""Directions between classes, relative to the scatter within them: scikit-learn's linear discriminant analysis."""

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import holdout


@holdout.trainable(
    holdout.EstimatorTrainable,
    shrinkage=holdout.Float(0.0, 1.0, default=0.1),
    normalised=holdout.Choice((True, False), default=True),
)
def discriminant(params, train, report):
    analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage=params["shrinkage"])
    return make_pipeline(Normalizer(), analysis) if params["normalised"] else analysis
