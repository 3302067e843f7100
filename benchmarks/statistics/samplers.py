"""Learning from failures: the share of diverging trials near a cliff, and the best value.

A third of a three-dimensional space diverges, and the optimum is close to it. Divergences are told to a sampler as FAIL
(which Optuna's samplers ignore), as PRUNED without a value, or as in searches. Run with
``python -m benchmarks statistics``; it takes minutes.
"""

import numpy as np
from rich.console import Console

from benchmarks.statistics.landscapes import TRIALS, WAYS, lost_and_best

SEARCHES = {"tpe": 400, "gp": 16, "cmaes": 400}
"""The number of simulated searches; the Gaussian process is slow."""


def main() -> None:
    """Print the lost trials and the best values."""
    console = Console(width=140, highlight=False)
    layout = "{:>8} {:>6}  {:16} {:>24} {:>18}"
    console.print(f"Near a cliff, searches of {TRIALS} trials, means ± standard errors:")
    console.print(layout.format("sampler", "slots", "divergences are", "lost, of modelled trials", "best value"))
    for sampler, searches in SEARCHES.items():
        for slots in (1,) if sampler == "gp" else (1, 4):
            for way in WAYS:
                told = (_mean(found) for found in lost_and_best(sampler, way, slots, searches))
                console.print(layout.format(sampler, slots, way, *told))


def _mean(values: list[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"


if __name__ == "__main__":
    main()
