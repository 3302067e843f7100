"""The rate at which the most important hyperparameter is ranked first, with and without the pruned trials.

TPE with successive halving searches four hyperparameters: one is important, two matter a little, one has no effect. The
importances of reports, which compare all trials that reached a rung, are compared with those of the complete trials
only, with the best tenth (Optuna's default) or the better half as the target. The last lines are of searches in which
nothing matters: the first share by chance. Run with ``python -m benchmarks statistics``.
"""

import itertools
import statistics
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import FrozenTrial, TrialState
from rich.console import Console

from search.show.sections.importances import importances
from search.tables import PRUNERS

STUDIES = 60
STEPS = 8
SPACE: Mapping[str, BaseDistribution] = {
    "idle": FloatDistribution(0, 1),
    "kind": CategoricalDistribution(("a", "b", "c")),
    "weak": FloatDistribution(0, 1),
    "strong": FloatDistribution(0.001, 0.1, log=True),
}
PRUNER = PRUNERS["asha"](steps=STEPS)
RUNGS = (*PRUNER.rungs, STEPS)


def search(trials: int, noise: float, seed: int, matters: float = 1.0) -> list[FrozenTrial]:
    """Run a study of ``trials`` trials; ``matters`` scales the effect of all hyperparameters."""
    generator = np.random.default_rng(seed)
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    comparison = PRUNER.rule("made")
    for number in range(trials):
        trial = study.ask(dict(SPACE))
        found = trial.params
        quality = (
            -abs(np.log10(found["strong"]) + 1.6) / 2 - 0.3 * abs(found["weak"] - 0.3) - 0.2 * (found["kind"] == "a")
        )
        best, state = -np.inf, TrialState.COMPLETE
        for step in range(1, STEPS + 1):
            value = matters * quality * min(1, 0.3 + step / STEPS) + step / 10 + noise * generator.standard_normal()
            best = max(best, float(value))
            trial.report(best, step)
            if comparison.reason(number, step, best) and number > 0 and step < STEPS:
                state = TrialState.PRUNED
                break
        study.tell(trial, best if state == TrialState.COMPLETE else None, state=state)
    return study.trials


def of_complete(trials: Sequence[FrozenTrial], share: float) -> str | None:
    """Return the first hyperparameter by the complete trials only; None if all importances are equal."""
    study = optuna.create_study(direction="maximize")
    study.add_trials(trial for trial in trials if trial.state == TrialState.COMPLETE)
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=share))
    return max(found, key=found.__getitem__) if len(set(found.values())) > 1 else None


def main() -> None:
    """Print how often each method ranks the strong one first."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", UserWarning)  # of few complete trials
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    console = Console(width=140, highlight=False)
    layout = "{:>7} {:>6} {:>14} {:>14} {:>14}"
    console.print("Rate at which the most important hyperparameter is first:")
    console.print(layout.format("trials", "noise", "complete, .1", "complete, .5", "at the rungs"))
    for trials, noise in itertools.product((12, 16, 32, 64), (0.05, 0.15)):
        counts = np.zeros(3)
        for seed in range(STUDIES):
            found = search(trials, noise, seed)
            ours = importances(found, RUNGS, list(SPACE))
            assert ours is not None
            firsts = (of_complete(found, 0.1), of_complete(found, 0.5), next(iter(ours.shares)))
            counts += [first == "strong" for first in firsts]
        console.print(layout.format(trials, noise, *(f"{count / STUDIES:.2f}" for count in counts)))
    for trials in (12, 16, 32, 64):
        shares = []
        for seed in range(STUDIES):
            ours = importances(search(trials, 0.15, seed, matters=0.0), RUNGS, list(SPACE))
            assert ours is not None
            shares.append(next(iter(ours.shares.values())))
        console.print(f"Where nothing matters, {trials} trials: the first share is {statistics.fmean(shares):.2f}")


if __name__ == "__main__":
    main()
