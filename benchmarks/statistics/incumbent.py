"""The incumbent of the Gaussian process: the luckiest value, as Optuna has it, or the best posterior mean.

Landscapes in three dimensions whose values have noise. Run with ``make bench-statistics``; it takes minutes.
"""

from collections.abc import Sequence

import numpy as np
from optuna.samplers import BaseSampler, GPSampler
from optuna.trial import FrozenTrial
from rich.console import Console

from benchmarks.statistics.landscapes import TRIALS, Landscape, climb, plain_study, tell_failed
from search.study.samplers import GaussianProcess

SEARCHES = 16
NOISES = (0.05, 0.15)
"""Deviations of a value; heights of random points of the landscape deviate by 0.2."""


class Luckiest(GaussianProcess):
    """Optuna's own."""

    def build(self, number: int, trials: Sequence[FrozenTrial]) -> BaseSampler:
        """Optuna's own."""
        return GPSampler(seed=self.seed_of(number), n_startup_trials=self.unmodelled)


INCUMBENTS: dict[str, type[GaussianProcess]] = {"luckiest value": Luckiest, "posterior mean": GaussianProcess}


def heights(row: type[GaussianProcess], noise: float, seed: int) -> tuple[float, ...]:
    """Of one search: the mean height of the model's proposals; the highest of all, of five best values, of the best.

    What is confirmed with fresh seeds is the best five.
    """
    generator = np.random.default_rng(seed)
    landscape = Landscape(optimum=dict(zip(("x0", "x1", "x2"), generator.uniform(0, 1, 3), strict=True)), noise=noise)
    space = landscape.space({"x0": 0.5, "x1": 0.5, "x2": 0.5})
    sampler = row(loss="made-up", space=space, seed=seed, trials=TRIALS)
    trials = climb(plain_study(sampler), landscape, sampler, tell_failed, slots=1, generator=generator)
    modelled = [landscape.height(trial.params) for trial in trials[sampler.unmodelled :]]
    by_value = sorted(trials, key=lambda trial: trial.values[0], reverse=True)
    found = [landscape.height(trial.params) for trial in by_value]
    return float(np.mean(modelled)), max(found), max(found[:5]), found[0]


def main() -> None:
    """Print heights by incumbent and noise, and the differences of the same searches."""
    console = Console(width=140, highlight=False)
    layout = "{:>6}  {:16}" + " {:>17}" * 4
    console.print(f"Heights of {SEARCHES} searches of {TRIALS} trials, means ± standard errors:")
    console.print(layout.format("noise", "incumbent", "mean proposal", "highest", "of the best five", "of the best"))
    for noise in NOISES:
        found = {
            name: np.array([heights(row, noise, seed) for seed in range(SEARCHES)]) for name, row in INCUMBENTS.items()
        }
        luckiest, mean = found.values()
        for name, table in {**found, "difference": mean - luckiest}.items():
            errors = table.std(0, ddof=1) / SEARCHES**0.5
            told = (f"{value:.3f} ± {error:.3f}" for value, error in zip(table.mean(0), errors, strict=True))
            console.print(layout.format(noise, name, *told))


if __name__ == "__main__":
    main()
