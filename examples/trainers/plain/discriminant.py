"""Directions between classes, relative to the scatter within them: scikit-learn's linear discriminant analysis."""

import joblib
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from examples.trainers import tiny


def discriminant():
    analysis = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1)
    return make_pipeline(Normalizer(), analysis)


if __name__ == "__main__":
    joblib.dump(discriminant().fit(*tiny.vectors()), "discriminant.joblib")
