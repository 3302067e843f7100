"""Importances of hyperparameters."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

# Which hyperparameters matter, by the trials that were pruned too.
#
# PED-ANOVA (Watanabe et al. 2023, arXiv:2304.10255; for parameters that exist in some trials only, arXiv:2601.20800) as
# Optuna computes it: how much the parameter's values among the better trials differ from its values among all.

MIN_TRIALS: Final = 10
"""Fewer trials at a rung say nothing there."""

BETTER: Final = 0.5
"""The better half, which pruning lets go on: of few trials a tenth, Optuna's own share, is one or two.

Of made-up searches of 16, 32 and 64 trials under halving with much noise, 72, 83 and 97 % put first what matters most;
with the complete trials alone 52, 50 and 57 %, and 10, 32 and 65 % with a tenth of these. Where nothing matters the
first of four shares comes to a half by chance (``make bench-statistics``).
"""


@dataclass(frozen=True, kw_only=True)
class Importances:
    """``shares`` sums to 1, the highest first; ``rungs`` maps each step that was looked at to its number of trials."""

    shares: Mapping[str, float]
    rungs: Mapping[int, int]


def importances(trials: Sequence[FrozenTrial], rungs: Sequence[int], names: Sequence[str]) -> Importances | None:
    """The share of each of ``names`` in what makes a trial one of the better half; None where no rung has ten trials.

    Most trials of a search are pruned, so their values at the rungs count as well: at each of ``rungs`` all trials that
    reached it are compared by their values there, as pruning compared them, and never by values of different rungs. The
    shares of a rung sum to 1; the result is their mean over the rungs, each weighted by its number of trials.

    Args:
        trials: of one study; failed ones count as far as they came.
        rungs: the steps that are looked at, the last step among them.
        names: the hyperparameters that vary.
    """
    sums = dict.fromkeys(names, 0.0)
    looked_at: dict[int, int] = {}
    for rung in rungs:
        reached = [trial for trial in trials if rung in trial.intermediate_values]
        if len(reached) < MIN_TRIALS:
            continue
        looked_at[rung] = len(reached)
        for name, share in _shares(reached, rung, names).items():
            sums[name] += share * len(reached)
    if not looked_at or not names:
        return None
    total = sum(looked_at.values())
    ranked = sorted(sums, key=lambda name: -sums[name])
    return Importances(shares={name: sums[name] / total for name in ranked}, rungs=looked_at)


def _shares(trials: Sequence[FrozenTrial], rung: int, names: Sequence[str]) -> dict[str, float]:
    """The shares by the values at ``rung`` of ``trials`` that reached it."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances  # loads scikit-learn

    study = optuna.create_study(direction="maximize")
    study.add_trials(
        create_trial(
            params={name: value for name, value in trial.params.items() if name in names},
            distributions={name: entry for name, entry in trial.distributions.items() if name in names},
            value=trial.intermediate_values[rung],
            state=TrialState.COMPLETE,
        )
        for trial in trials
    )
    there = [name for name in names if any(name in trial.params for trial in trials)]
    with warnings.catch_warnings():
        # A parameter that one trial alone has, or lacks; and trials whose values are all the same.
        warnings.filterwarnings("ignore", "Some regimes for parameter", UserWarning)
        warnings.filterwarnings("ignore", "Target and region quantiles", UserWarning)
        return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(target_quantile=BETTER), params=there)
