"""Successive halving with ⌊n/2⌋ or ⌈n/2⌉ survivors of the n trials at a rung: survivors and costs.

Trials are noisy curves that rise to their final values at different speeds, so later epochs are more informative. Run
with ``python -m benchmarks statistics``; it takes seconds.
"""

import itertools
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from search.tables import PRUNERS

Floats = NDArray[np.float64]
Rule = Callable[[int, int, float], bool]
"""``rule(number, epoch, value)`` returns True if the trial is pruned; called with all values of a trial in order."""

SEARCHES, TRIALS, EPOCHS = 2000, 16, 16
RUNGS = (2, 4, 8)
SPEEDS = {"early": 0.1, "late": 0.5}
"""The spread of the curves' speeds (standard deviation of their logarithms), by when the best trial shows."""
NOISES = (0.02, 0.05)
"""Standard deviations of a value; that of the final values is 0.1."""


def curves(count: int, spread: float, noise: float, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw the running maxima of ``count`` trials after each epoch, and their final values without noise."""
    ends = 0.5 + 0.1 * generator.standard_normal(count)
    speeds = 0.3 * np.exp(spread * generator.standard_normal(count))
    rising = ends[:, None] * (1 - np.exp(-speeds[:, None] * np.arange(1, EPOCHS + 1)))
    noisy = rising + noise * generator.standard_normal(rising.shape)
    return np.maximum.accumulate(noisy, axis=1), rising[:, -1]


def halving(keep: Callable[[int], int]) -> Rule:
    """Return a rule that prunes a trial which is not among the best ``keep(n)`` of the n trials at its rung."""
    came: dict[int, list[float]] = {rung: [] for rung in RUNGS}

    def ends(number: int, epoch: int, value: float) -> bool:
        if epoch not in came:
            return False
        came[epoch].append(value)
        return sum(other > value for other in came[epoch]) >= keep(len(came[epoch]))

    return ends


def of_the_code() -> Rule:
    """Return the product's rule."""
    comparison = PRUNERS["asha"](steps=EPOCHS).rule("made-up")
    return lambda number, epoch, value: comparison.reason(number, epoch, value) is not None


def trained(values: Floats, rule: Rule) -> list[int]:
    """Return the number of epochs of each trial; trial 0 is never pruned."""
    epochs = []
    for number, values_of_trial in enumerate(values):
        ended = (
            epoch
            for epoch, value in enumerate(values_of_trial, start=1)
            if rule(number, epoch, float(value)) and number
        )
        epochs.append(next(ended, EPOCHS))
    return epochs


WAYS: Mapping[str, tuple[int, Callable[[], Rule]]] = {
    "floor": (TRIALS, lambda: halving(lambda count: max(1, count // 2))),
    "ceil": (TRIALS, lambda: halving(lambda count: -(-count // 2))),
    "floor, 3 more": (TRIALS + 3, lambda: halving(lambda count: max(1, count // 2))),
    "as searches do": (TRIALS, of_the_code),
}


def main() -> None:
    """Print how often the best trial is trained to its end, the epochs, and the chosen trial's final value."""
    console = Console(width=140, highlight=False)
    layout = "{:>6} {:>6}  {:17} {:>10} {:>8} {:>18}"
    console.print(f"Halving {TRIALS} trials of {EPOCHS} epochs, {SEARCHES} searches:")
    console.print(layout.format("shows", "noise", "survivors", "best stays", "epochs", "best end chosen"))
    for (title, spread), noise in itertools.product(SPEEDS.items(), NOISES):
        for way, (trials, make) in WAYS.items():
            generator = np.random.default_rng(0)
            stays, cost, reached = [], [], []
            for _ in range(SEARCHES):
                values, ends = curves(TRIALS + 3, spread, noise, generator)
                values, ends = values[:trials], ends[:trials]
                epochs = np.array(trained(values, make()))
                complete = np.flatnonzero(epochs == EPOCHS)
                stays.append(ends.argmax() in complete)
                cost.append(epochs.sum())
                reached.append(ends[complete[values[complete, -1].argmax()]])
            error = np.std(reached) / SEARCHES**0.5
            told = (f"{np.mean(stays):.3f}", f"{np.mean(cost):.1f}", f"{np.mean(reached):.4f} ± {error:.4f}")
            console.print(layout.format(title, noise, way, *told))


if __name__ == "__main__":
    main()
