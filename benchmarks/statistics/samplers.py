"""Learning from failures: how many trials are lost beside a cliff, and how high the best one climbs.

A third of a three-dimensional space diverges, and the optimum lies beside it. A sampler is told of what diverged as
FAIL, which Optuna's samplers pass over, as PRUNED without a value, or as searches tell it. Run with
``make bench-statistics``; it takes minutes.
"""

import numpy as np
from rich.console import Console

from benchmarks.statistics.landscapes import TRIALS, WAYS, lost_and_best

SEARCHES = {"tpe": 400, "gp": 16, "cmaes": 400}
"""How many are simulated; the Gaussian process takes its time."""


def main() -> None:
    """Print what is lost and what is found."""
    console = Console(width=140, highlight=False)
    layout = "{:>8} {:>6}  {:16} {:>24} {:>18}"
    console.print(f"Beside a cliff, searches of {TRIALS} trials, means ± standard errors:")
    console.print(layout.format("sampler", "slots", "what diverged is", "lost of those modelled", "best value"))
    for sampler, searches in SEARCHES.items():
        for slots in (1,) if sampler == "gp" else (1, 4):
            for way in WAYS:
                told = (_mean(found) for found in lost_and_best(sampler, way, slots, searches))
                console.print(layout.format(sampler, slots, way, *told))


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
