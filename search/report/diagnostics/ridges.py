"""Pairs of hyperparameters that a study cannot tell apart: good values lie along a ridge, where one makes up for the
other.

Shapes: N complete trials, Q of them the best quarter.
"""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from search.report.diagnostics.finding import Finding
from search.report.diagnostics.scale import position
from spaces.space import Space

Floats = NDArray[np.float64]

MIN_TRIALS = 32
CORRELATION = 0.7
LENGTH = 0.5
LEVEL = 0.01


def ridges(space: Space, trials: Sequence[FrozenTrial]) -> Iterator[Finding]:
    """The pairs of ``space`` between which the best quarter of the complete trials trades one for the other.

    All of this has to hold, with positions in each range's own scale:

    - in the best quarter the two are monotone in each other: Spearman's correlation is at least 0.7 in size, and
      significant at 1 % after dividing by the number of pairs;
    - the best quarter spans at least half of both ranges, so that it is a ridge and no peak;
    - along it the value does not rise or fall (no correlation with either parameter at 5 %);
    - away from it the value falls: among the *other* trials the distance from the monotone curve through the best
      quarter is correlated with lower values, at 1 %. A sampler that dwells on a few points makes correlations too,
      but away from them nothing is lost.

    Fewer than 32 trials that have both parameters say nothing. Two separate peaks on a diagonal can look like a ridge.
    """
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    ranges = {
        name: entry.distribution
        for name, entry in space.items()
        if isinstance(entry.distribution, FloatDistribution | IntDistribution) and not entry.distribution.single()
    }
    pairs = list(itertools.combinations(ranges, 2))
    for first, second in pairs:
        having = [trial for trial in complete if {first, second} <= trial.params.keys()]
        if len(having) < MIN_TRIALS:
            continue
        positions_N2 = np.array(
            [[position(ranges[name], trial.params[name]) for name in (first, second)] for trial in having]
        )
        values_N = np.array([trial.value for trial in having])
        correlation = ridge(positions_N2, values_N, level=LEVEL / len(pairs))
        if correlation is None:
            continue
        kept = "their product" if correlation < 0 else "their ratio"
        yield Finding(
            kind="ridge",
            parameters=(first, second),
            sentence=f"{first} and {second} cannot be told apart: the best {len(having) // 4} of {len(having)} trials "
            f"trade one for the other (rank correlation {correlation:.2f}, something like {kept} counts) at the same "
            "value; a new search could pin one of them",
        )


def ridge(positions_N2: Floats, values_N: Floats, *, level: float) -> float | None:
    """Spearman's correlation along the ridge of one pair as :func:`ridges` defines it; None where there is none."""
    from scipy.stats import spearmanr  # half a second, for large studies alone

    order = np.argsort(-values_N, kind="stable")
    best_Q, others = order[: len(order) // 4], order[len(order) // 4 :]
    positions_Q2 = positions_N2[best_Q]
    if np.ptp(positions_Q2, axis=0).min() < LENGTH:
        return None
    correlation, p = spearmanr(positions_Q2)
    if abs(correlation) < CORRELATION or p > level:
        return None
    if any(spearmanr(column_Q, values_N[best_Q]).pvalue <= 0.05 for column_Q in positions_Q2.T):
        return None
    from sklearn.isotonic import IsotonicRegression  # with pandas a sixth of every command's start, for few of them

    curve = IsotonicRegression(increasing=bool(correlation > 0), out_of_bounds="clip").fit(*positions_Q2.T)
    distances = np.abs(positions_N2[others, 1] - curve.predict(positions_N2[others, 0]))
    falls = spearmanr(distances, values_N[others], alternative="less")
    return float(correlation) if falls.pvalue <= LEVEL else None
