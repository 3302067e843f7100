"""Draws around the default, by their share: how high the chosen trial lies, by how near the default is to the optimum.

Landscapes of four numbers and a choice of five, with noise. Run with ``make bench-statistics``; it takes minutes.
"""

import numpy as np
from rich.console import Console

from benchmarks.statistics.landscapes import TRIALS, Landscape, climb, plain_study, tell_failed
from search.study.samplers import SAMPLERS
from spaces.space import Value

SEARCHES = 100
SHARES = (0.0, 0.125, 0.25, 0.5)
DISTANCES = {"near, .1": 0.1, "near, .25": 0.25, "anywhere": None}
"""The deviation of each number of the default from the optimum; near ones have the right choice in two thirds."""
NAMES = ("x0", "x1", "x2", "x3")
CHOICES = 5


def chosen_height(sampler_name: str, share: float, distance: float | None, seed: int) -> float:
    """The height of the trial with the best value."""
    generator = np.random.default_rng(seed)
    optimum = dict(zip(NAMES, generator.uniform(0, 1, len(NAMES)), strict=True))
    landscape = Landscape(optimum=optimum, noise=0.05, choices=CHOICES)
    if distance is None:
        default: dict[str, Value] = {name: generator.uniform(0, 1) for name in NAMES}
        default["choice"] = int(generator.integers(CHOICES))
    else:
        default = {
            name: float(np.clip(best + distance * generator.standard_normal(), 0, 1)) for name, best in optimum.items()
        }
        default["choice"] = 0 if generator.random() < 2 / 3 else int(generator.integers(1, CHOICES))
    sampler = SAMPLERS[sampler_name](
        loss="made-up", space=landscape.space(default), seed=seed, trials=TRIALS, prior=share
    )
    trials = climb(plain_study(sampler), landscape, sampler, tell_failed, slots=1, generator=generator)
    return landscape.height(max(trials, key=lambda trial: trial.values[0]).params)


def main() -> None:
    """Print the mean height of what is chosen, and what the draws gain on the same searches without."""
    console = Console(width=140, highlight=False)
    layout = "{:>8}  {:10}" + " {:>16}" * len(SHARES)
    console.print(
        f"Heights of what is chosen, {SEARCHES} searches of {TRIALS} trials, and the gains ± standard errors:"
    )
    console.print(layout.format("sampler", "default", *(f"share {share:g}" for share in SHARES)))
    for sampler in ("tpe", "random"):
        for title, distance in DISTANCES.items():
            without, *others = (
                np.array([chosen_height(sampler, share, distance, seed) for seed in range(SEARCHES)])
                for share in SHARES
            )
            gains = (
                f"{(other - without).mean():+.3f} ± {(other - without).std(ddof=1) / SEARCHES**0.5:.3f}"
                for other in others
            )
            console.print(layout.format(sampler, title, f"{without.mean():.3f}", *gains))


if __name__ == "__main__":
    main()
