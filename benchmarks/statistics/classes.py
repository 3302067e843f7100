"""The role of chance in the choice among finalists, by the number of validation classes, and its optimism.

Forty configurations have qualities with standard deviation 1. The quality on a single class deviates from that on all
classes by a varied amount, equal in search and confirmation, which validate on the same classes. The noise of a
training is half a standard deviation. The five best of the search are confirmed with three seeds, and the best mean is
chosen. Printed is the gain of the choice over a random one of the five, as a share of the gain of the best of the five;
0 means pure chance.

Then searches of 16 equal configurations choose by the product's rule, with default settings. The value of a
configuration on a class deviates by ``POINTS``, in the search, the confirmation and the final trainings alike, and that
of a training by ``SEED_POINTS``. Printed is by how much the mean of three final trainings, on the validation classes,
is above the default's if a trial is chosen; the truth is 0. Run with ``python -m benchmarks statistics``; it takes
seconds.

Shapes: S searches, T trials, F finalists, K classes.
"""

import numpy as np
from optuna.distributions import IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial
from rich.console import Console

from search.difference import CLASS_POINTS, Basis, confirms_on_halves
from search.records.selection import Confirmation, choose, finalists

SEARCHES, TRIALS, FINALISTS, SEEDS, NOISE = 4000, 40, 5, 3, 0.5
CLASSES = (2, 5, 10, 20, 48, 100)

EQUAL_SEARCHES, EQUAL_TRIALS = 1000, 16
POINTS, SEED_POINTS = CLASS_POINTS / 2**0.5, 1 / 2**0.5
"""Deviations of one configuration; those of a difference of two are 6 points and 1 (docs/design.md)."""
BASIS = Basis(objective="map_at_r", validation="", confirmation="", better_by=1.0)


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


def searched(number: int, value: float) -> FrozenTrial:
    """Return a complete trial of a search."""
    trial = create_trial(
        state=TrialState.COMPLETE, value=value, params={"number": number},
        distributions={"number": IntDistribution(0, EQUAL_TRIALS)},
    )  # fmt: skip
    trial.number = number
    return trial


def optimism(validating: int, training: int, scale: float, generator: np.random.Generator) -> tuple[float, float]:
    """Return the share of searches that choose a trial, and by how many points its final value is above the default's.

    ``validating`` of the ``training`` classes validate; ``scale`` multiplies all deviations.
    """
    halves = confirms_on_halves("auto", validating)
    classes, seeds = (training, 1) if halves else (validating, 2)
    gains = []
    for _ in range(EQUAL_SEARCHES):
        values_TK = scale * POINTS * generator.standard_normal((EQUAL_TRIALS, training))
        on_split_T = values_TK[:, :validating].mean(1)
        seen_T, final_T = (
            on_split_T + scale * SEED_POINTS / count**0.5 * generator.standard_normal(EQUAL_TRIALS) for count in (1, 3)
        )
        trials = [searched(number, value / 100) for number, value in enumerate(seen_T.tolist())]
        confirmed = {}
        for trial in finalists(trials, 3):
            noise = scale * SEED_POINTS / seeds**0.5 * generator.standard_normal()
            confirmed_K = (values_TK[trial.number, :classes] + noise) / 100
            confirmed[trial.number] = Confirmation(
                number=trial.number, params=trial.params, searched=(trial.value or 0.0,), best_epochs=(), failed=0,
                values=(float(confirmed_K.mean()),),
                classes={str(place): value for place, value in enumerate(confirmed_K.tolist())},
            )  # fmt: skip
        choice = choose(confirmed, trials[0].params, BASIS)
        assert choice is not None, "every training has values"
        if number := choice[0].number:
            gains.append(final_T[number] - final_T[0])
    return len(gains) / EQUAL_SEARCHES, float(np.mean(gains))


def main() -> None:
    """Print the shares by the number of classes and the deviation between classes, and the optimism."""
    generator = np.random.default_rng(0)
    console = Console(width=140, highlight=False)
    console.print("Share of the possible gain that the choice keeps, by the classes that validate")
    console.print(("{:>24}" + " {:>6}" * len(CLASSES)).format("deviation of a class", *CLASSES))
    for by_class in (0.5, 1.0, 2.0, 3.0, 4.0):
        kept = (f"{gain_kept(classes, by_class, generator):.2f}" for classes in CLASSES)
        console.print(("{:>24}" + " {:>6}" * len(CLASSES)).format(by_class, *kept))
    console.print(
        f"{EQUAL_TRIALS} equal configurations: final value above the default's if a trial is chosen, in points"
    )
    for scale in (1.0, 2**0.5):
        console.print(f"deviations of a class {scale * POINTS:.1f} and of a training {scale * SEED_POINTS:.1f} points:")
        for validating, training in ((4, 40), (20, 40), (40, 400)):
            share, gain = optimism(validating, training, scale, generator)
            console.print(f"{validating:>8} of {training} classes validate: {gain:+.1f}, chosen in {share:.0%}")


if __name__ == "__main__":
    main()
