"""The rate of warnings about a range that may be too small, with true and with false ones.

TPE with successive halving searches three parameters; the value depends on the first one by a parabola with its optimum
inside the range, at its end or outside, or not at all. Run with ``python -m benchmarks statistics``.
"""

import itertools
from collections.abc import Mapping

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.results.summarise import edges
from spaces.space import Float

STUDIES = 100
SPACE = {name: Float(0, 1, default=0.5, source="made") for name in ("x", "y", "z")}
OPTIMA: Mapping[str, float | None] = {"does nothing": None, "0.5": 0.5, "0.85": 0.85, "1.0": 1.0, "1.3": 1.3}
STEPS = (1, 2, 4, 8)


def search(trials: int, optimum: float | None, noise: float, seed: int) -> list[FrozenTrial]:
    """Run a study of ``trials`` trials; halving prunes the lower half at each rung except the last."""
    generator = np.random.default_rng(seed)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rungs: dict[int, list[float]] = {step: [] for step in STEPS}
    for _ in range(trials):
        trial = study.ask({name: entry.distribution for name, entry in SPACE.items()})
        quality = -((trial.params["y"] - 0.5) ** 2) - (trial.params["z"] - 0.4) ** 2
        quality -= 0 if optimum is None else (trial.params["x"] - optimum) ** 2
        value, state = 0.0, TrialState.COMPLETE
        for step in STEPS:
            value = quality * (1 - 0.5**step) - 0.6 * 0.6**step + noise * generator.standard_normal()
            trial.report(value, step)
            rungs[step].append(value)
            half = sorted(rungs[step], reverse=True)[: max(1, len(rungs[step]) // 2)]
            if step < STEPS[-1] and value < half[-1]:
                state = TrialState.PRUNED
                break
        study.tell(trial, None if state == TrialState.PRUNED else value, state=state)
    return study.trials


def main() -> None:
    """Print how often the best trial is at the high end."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    console = Console(width=140, highlight=False)
    layout = "{:>7} {:>6}" + " {:>14}" * len(OPTIMA)
    console.print("Rate of warnings about the high end of a range; optimum of the parameter at:")
    console.print(layout.format("trials", "noise", *OPTIMA))
    for trials, noise in itertools.product((16, 32, 64), (0.03, 0.15)):
        rates = []
        for optimum in OPTIMA.values():
            count = 0
            for seed in range(STUDIES):
                found = search(trials, optimum, noise, seed)
                complete = [trial for trial in found if trial.state == TrialState.COMPLETE]
                best = max(complete, key=lambda trial: trial.value or 0.0).params
                said = edges(SPACE, best, lambda name, beyond: True)
                count += any(entry.parameters == ("x",) and "upwards" in entry.sentence for entry in said)
            rates.append(f"{count / STUDIES:.2f}")
        console.print(layout.format(trials, noise, *rates))


if __name__ == "__main__":
    main()
