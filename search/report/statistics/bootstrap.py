"""How sure the difference of two losses is: a paired bootstrap over test classes and training seeds.

Shapes: B draws, C test classes, S seeds that both losses share, R trained models.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row", bound=Hashable)
Floats = NDArray[np.float64]

DRAWS = 20_000
_BLOCK = 4_000_000  # class weights held at once, 32 MB
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Difference(Generic[Row]):
    """The mean score of ``first`` minus that of ``second`` over the seeds that they share, and how sure it is.

    ``p_bootstrap`` is against other classes and seeds, ``p_seeds`` against the seeds' own spread (None with one
    seed); ``p`` is the larger, and ``ci95`` the wider of the two 95 % intervals.
    """

    first: Row
    second: Row
    seeds: int
    difference: float
    ci95: tuple[float, float]
    p_bootstrap: float
    p_seeds: float | None

    @property
    def p(self) -> float:
        """The p-value of the pair, before any correction for other pairs."""
        return max(self.p_bootstrap, self.p_seeds or 0.0)


def paired_bootstrap(
    sums: Mapping[Row, Mapping[int, Floats]],
    counts_C: NDArray[np.int64],
    pairs: Sequence[tuple[Row, Row]],
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> list[Difference[Row]]:
    """The difference of each of ``pairs``, paired by test class and by training seed.

    A draw resamples the classes with replacement, all queries of a class together and the same classes for all rows,
    and the seeds of a pair with replacement, the same for both rows. Its value d* is the difference of the mean
    scores over queries, averaged over the drawn seeds. With the observed difference d and b the number of draws with
    |d* − d| ≥ |d|, p = (b + 1) / (B + 1), two-sided; the interval is d ± the 95 % quantile of |d* − d|.

    Two or three seeds that are resampled cannot show how far their mean may be off: where the seeds' noise is the
    larger, a test at 5 % would reject a fifth of the true hypotheses. A difference therefore has to hold against
    Student's paired t over the seeds as well, which is conservative where the classes' noise is the larger.

    It covers other test classes of the same kind and other training seeds. It does not cover the choice of the
    hyperparameters or the validation split, of which there is one.

    Args:
        sums: for each row and training seed, the sum of the query scores of each test class.
        counts_C: the number of queries of each test class.
        pairs: rows that have at least one seed in common.
        draws: B, the number of draws.
        seed: of the draws, so that the same scores always give the same numbers.
    """
    runs = [(row, run) for row in dict.fromkeys(row for pair in pairs for row in pair) for run in sums[row]]
    if not runs:
        return []
    sums_RC = np.stack([sums[row][run] for row, run in runs])
    generator = np.random.default_rng(seed)
    observed = dict(zip(runs, (sums_RC.sum(1) / counts_C.sum()).tolist(), strict=True))
    means_BR = _resampled_means(sums_RC, counts_C, draws, generator)
    drawn = dict(zip(runs, means_BR.T, strict=True))
    weights: dict[int, Floats] = {}
    found = []
    for first, second in pairs:
        shared = sorted(sums[first].keys() & sums[second].keys())
        assert shared, f"{first} and {second} share no seed"
        if len(shared) not in weights:
            even = np.full(len(shared), 1 / len(shared))
            weights[len(shared)] = generator.multinomial(len(shared), even, draws) / len(shared)
        differences_BS = np.stack([drawn[first, run] - drawn[second, run] for run in shared], axis=1)
        by_seed_S = np.array([observed[first, run] - observed[second, run] for run in shared])
        drawn_B = (differences_BS * weights[len(shared)]).sum(1)
        found.append(_difference(first, second, by_seed_S, drawn_B))
    return found


def _resampled_means(
    sums_RC: Floats, counts_C: NDArray[np.int64], draws: int, generator: np.random.Generator
) -> Floats:
    """The mean score of each model over the queries of resampled classes, [B, R]."""
    classes = len(counts_C)
    columns_CX = np.vstack([sums_RC, counts_C]).T
    block = max(1, _BLOCK // classes)
    parts = []
    for start in range(0, draws, block):
        size = min(block, draws - start)
        chosen = generator.integers(0, classes, (size, classes), dtype=np.int32)
        chosen += np.arange(size, dtype=np.int32)[:, None] * classes
        weights_BC = np.bincount(chosen.ravel(), minlength=size * classes).reshape(size, classes).astype(np.float64)
        parts.append(weights_BC @ columns_CX)
    totals_BX = np.concatenate(parts)
    means_BR: Floats = totals_BX[:, :-1] / totals_BX[:, -1:]
    return means_BR


def _difference(first: Row, second: Row, by_seed_S: Floats, drawn_B: Floats) -> Difference[Row]:
    from scipy.special import stdtr, stdtrit  # not before there is a pair to compare

    difference, seeds = float(by_seed_S.mean()), len(by_seed_S)
    deviations_B = np.abs(drawn_B - difference)
    beyond = int((deviations_B >= abs(difference) * (1 - _ROUNDING)).sum())
    half = float(np.quantile(deviations_B, 0.95))
    p_seeds = None
    if seeds > 1:
        error = float(by_seed_S.std(ddof=1)) / seeds**0.5
        half = max(half, float(stdtrit(seeds - 1, 0.975)) * error)
        t = abs(difference) / error if error else (np.inf if difference else 0.0)
        p_seeds = float(2 * stdtr(seeds - 1, -t))
    return Difference(
        first=first,
        second=second,
        seeds=seeds,
        difference=difference,
        ci95=(difference - half, difference + half),
        p_bootstrap=(beyond + 1) / (len(drawn_B) + 1),
        p_seeds=p_seeds,
    )
