"""The coverage of intervals for the mean of a metric between 0 and 1 over a few seeds.

Seeds are drawn from three distributions on [0, 1]: normal on the logit scale, beta, and truncated normal. Their
standard deviation is a share of √(μ(1 − μ)), the maximum for a metric of mean μ: .05 is typical of trainings on drawn
signs, .15 of trainings far from convergence. Five intervals use the same draws: Student's t; the same truncated to
[0, 1]; t on the logit and on the arcsine scale, around the transformed mean with the delta method's deviation; and
bootstrap-t on the logit scale. Run with ``python -m benchmarks statistics``; it takes half a minute.

Shapes: D draws of a sample, S seeds, R resamples.
"""

import itertools
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import expit, logit, stdtrit
from scipy.stats import truncnorm

from search.results.statistics import over_seeds

Floats = NDArray[np.float64]
Interval = Callable[[Floats], tuple[Floats, Floats]]

DRAWS, RESAMPLES, RESAMPLED = 20_000, 200, 1_000
SEEDS = (2, 3, 5, 10)
MEANS = (0.02, 0.1, 0.5, 0.9, 0.99)
SPREADS = (0.05, 0.15)
EDGE = 1e-9
"""The distance from 0 and 1 to which values are moved on unbounded scales."""


def _moments(values_DS: Floats) -> tuple[Floats, Floats, float]:
    """Return the mean, the standard error and the quantile of t."""
    seeds = values_DS.shape[1]
    error = values_DS.std(1, ddof=1) / seeds**0.5
    return values_DS.mean(1), error, float(stdtrit(seeds - 1, 0.975))


def plain(values_DS: Floats) -> tuple[Floats, Floats]:
    """Return Student's t interval."""
    mean, error, quantile = _moments(values_DS)
    return mean - quantile * error, mean + quantile * error


def clipped(values_DS: Floats) -> tuple[Floats, Floats]:
    """Return Student's t interval, truncated to [0, 1]."""
    low, high = plain(values_DS)
    return np.maximum(low, 0), np.minimum(high, 1)


def on_logit(values_DS: Floats) -> tuple[Floats, Floats]:
    """Return the t interval around the mean's logit."""
    mean, error, quantile = _moments(values_DS)
    mean = np.clip(mean, EDGE, 1 - EDGE)
    half = quantile * error / (mean * (1 - mean))
    return expit(logit(mean) - half), expit(logit(mean) + half)


def on_arcsine(values_DS: Floats) -> tuple[Floats, Floats]:
    """Return the t interval around arcsin √ of the mean."""
    mean, error, quantile = _moments(values_DS)
    mean = np.clip(mean, EDGE, 1 - EDGE)
    middle, half = np.arcsin(np.sqrt(mean)), quantile * error / (2 * np.sqrt(mean * (1 - mean)))
    low, high = np.clip(middle - half, 0, np.pi / 2), np.clip(middle + half, 0, np.pi / 2)
    return np.sin(low) ** 2, np.sin(high) ** 2


def bootstrap_t(values_DS: Floats) -> tuple[Floats, Floats]:
    """Return the bootstrap-t interval on the logit scale, of the first samples; single-seed resamples are excluded."""
    values_DS = values_DS[:RESAMPLED]
    mean, error, _ = _moments(values_DS)
    generator = np.random.default_rng(1)
    seeds = values_DS.shape[1]
    drawn = generator.integers(0, seeds, (len(values_DS), RESAMPLES, seeds))
    again_DRS = np.take_along_axis(values_DS[:, None], drawn, axis=2)
    deviation_DR = again_DRS.std(2, ddof=1)
    mean_DR = np.clip(again_DRS.mean(2), EDGE, 1 - EDGE)
    mean = np.clip(mean, EDGE, 1 - EDGE)
    moved = (logit(mean_DR) - logit(mean)[:, None]) * mean_DR * (1 - mean_DR) * seeds**0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        t_DR = np.where(deviation_DR > 1e-12, moved / deviation_DR, np.nan)
    t_DR[np.isnan(t_DR).all(1)] = 0
    lower, upper = np.nanquantile(t_DR, [0.025, 0.975], axis=1)
    scale = error / (mean * (1 - mean))
    return expit(logit(mean) - upper * scale), expit(logit(mean) - lower * scale)


INTERVALS: Mapping[str, Interval] = {
    "t": plain,
    "t, cut off": clipped,
    "logit": on_logit,
    "arcsine": on_arcsine,
    "bootstrap-t": bootstrap_t,
}


def draws(kind: str, mean: float, spread: float, seeds: int, generator: np.random.Generator) -> tuple[Floats, float]:
    """Draw samples of ``seeds`` seeds; return them with their distribution's mean, which is close to ``mean``."""
    most = (mean * (1 - mean)) ** 0.5
    deviation, shape = spread * most, (DRAWS, seeds)
    if kind == "logit normal":
        scale = deviation / most**2
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        truth = float((expit(logit(mean) + scale * nodes) * weights).sum() / weights.sum())
        return expit(logit(mean) + scale * generator.standard_normal(shape)), truth
    if kind == "beta":
        size = 1 / spread**2 - 1
        return generator.beta(mean * size, (1 - mean) * size, shape), mean
    ends = (0 - mean) / deviation, (1 - mean) / deviation
    normal = truncnorm(*ends, loc=mean, scale=deviation)
    return normal.rvs(shape, random_state=generator), float(normal.mean())


KINDS = ("logit normal", "beta", "truncated normal")


def compare_with_the_code(generator: np.random.Generator) -> None:
    """Check that the simulation equals the product's code."""
    values, _ = draws("beta", 0.1, 0.15, 3, generator)
    for found, low, high in zip(values[:20].tolist(), *on_logit(values[:20]), strict=True):
        assert np.allclose(over_seeds(found, bounded=True).ci95 or (), (low, high)), found


def main() -> None:
    """Print the coverage and mean width of each interval, by mean and seeds, and the lowest coverage."""
    generator = np.random.default_rng(0)
    compare_with_the_code(generator)
    console = Console(width=140, highlight=False)
    layout = "{:>5} {:>5}" + "  {:>22}" * len(INTERVALS)
    least: dict[tuple[int, str], float] = {}
    for spread in SPREADS:
        console.print(f"Deviation {spread} √(μ(1 − μ)): coverage, mean over {len(KINDS)} distributions · least · width")
        console.print(layout.format("seeds", "μ", *INTERVALS))
        for seeds, mean in itertools.product(SEEDS, MEANS):
            shown = []
            samples = [draws(kind, mean, spread, seeds, generator) for kind in KINDS]
            for name, interval in INTERVALS.items():
                covered, widths = [], []
                for values, truth in samples:
                    low, high = interval(values)
                    covered.append(float(((low <= truth) & (truth <= high)).mean()))
                    widths.append(float((high - low).mean()))
                shown.append(f"{np.mean(covered):.3f} · {min(covered):.3f} · {np.mean(widths):.4f}")
                least[seeds, name] = min(least.get((seeds, name), 1.0), *covered)
            console.print(layout.format(seeds, mean, *shown))
    console.print("Least coverage:")
    for seeds in SEEDS:
        console.print(layout.format(seeds, "", *(f"{least[seeds, name]:.3f}" for name in INTERVALS)))


if __name__ == "__main__":
    main()
