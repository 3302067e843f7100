"""The role of chance in the choice among finalists, by the number of validation classes.

Forty configurations have qualities with standard deviation 1. The quality on a single class deviates from that on all
classes by a varied amount, equal in search and confirmation, which validate on the same classes. The noise of a
training is half a standard deviation. The five best of the search are confirmed with three seeds, and the best mean is
chosen. Printed is the gain of the choice over a random one of the five, as a share of the gain of the best of the five;
0 means pure chance. Run with ``python -m benchmarks statistics``; it takes seconds.

Shapes: S searches, T trials, F finalists.
"""

import numpy as np
from rich.console import Console

SEARCHES, TRIALS, FINALISTS, SEEDS, NOISE = 4000, 40, 5, 3, 0.5
CLASSES = (2, 5, 10, 20, 48, 100)


def gain_kept(classes: int, by_class: float, generator: np.random.Generator) -> float:
    """Return the share of the possible gain that the choice achieves."""
    quality_ST = generator.standard_normal((SEARCHES, TRIALS))
    seen_ST = quality_ST + by_class / classes**0.5 * generator.standard_normal((SEARCHES, TRIALS))
    searched_ST = seen_ST + NOISE * generator.standard_normal((SEARCHES, TRIALS))
    finalists_SF = np.argsort(-searched_ST, axis=1)[:, :FINALISTS]
    quality_SF = np.take_along_axis(quality_ST, finalists_SF, axis=1)
    fresh_SF = NOISE / SEEDS**0.5 * generator.standard_normal((SEARCHES, FINALISTS))
    confirmed_SF = np.take_along_axis(seen_ST, finalists_SF, axis=1) + fresh_SF
    chosen_S = quality_SF[np.arange(SEARCHES), confirmed_SF.argmax(1)]
    typical_S = quality_SF.mean(1)
    return float((chosen_S - typical_S).mean() / (quality_SF.max(1) - typical_S).mean())


def main() -> None:
    """Print the shares by the number of classes and the deviation between classes."""
    generator = np.random.default_rng(0)
    console = Console(width=140, highlight=False)
    console.print("Share of the possible gain that the choice keeps, by the classes that validate")
    console.print(("{:>24}" + " {:>6}" * len(CLASSES)).format("deviation of a class", *CLASSES))
    for by_class in (0.5, 1.0, 2.0, 3.0, 4.0):
        kept = (f"{gain_kept(classes, by_class, generator):.2f}" for classes in CLASSES)
        console.print(("{:>24}" + " {:>6}" * len(CLASSES)).format(by_class, *kept))


if __name__ == "__main__":
    main()
