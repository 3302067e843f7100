"""The audit of a search's pruning: which pruned trials are trained to their end."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from trainables.spec import derived_seed


def to_audit(trials: Sequence[FrozenTrial], count: int, *, seed: int, loss: str) -> list[FrozenTrial]:
    """``count`` of the pruned ones among ``trials``, or all of them where they are fewer.

    They are those of the smallest random numbers, each drawn from the search's ``seed``, the loss and the trial's
    number: what they came to has no part in it.
    """
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    return sorted(pruned, key=lambda trial: derived_seed(seed, "audit", loss, trial.number))[:count]
