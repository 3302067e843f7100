"""All that a loss's study says about itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState

from search.report.diagnostics.edges import edges
from search.report.diagnostics.finding import Finding
from search.report.diagnostics.replicates import replicates
from search.report.diagnostics.ridges import ridges
from spaces.configuration import Configuration
from spaces.space import Space
from spaces.value import Value
from trainables.losses import LOSSES
from trainables.training.config import TrainingConfig

MIN_TRIALS = 8
"""Trials that were compared before the position of the best one in its range means something."""


def diagnose(
    loss: str,
    space: Space,
    training: TrainingConfig,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value] | None,
) -> tuple[Finding, ...]:
    """The findings about a search study of ``loss``; none where it is too small to say anything."""
    findings = [*ridges(space, trials), *replicates(trials)]
    compared = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in trials)
    if best is not None and compared >= MIN_TRIALS:
        findings = [*edges(space, best, lambda name, value: _allowed(loss, training, name, value)), *findings]
    return tuple(findings)


def _allowed(loss: str, training: TrainingConfig, name: str, value: Value) -> bool:
    configuration = Configuration({name: value})
    try:
        LOSSES[loss](num_classes=2, embedding_dim=2, **configuration.hyperparameters)
        replace(training, **configuration.training)
    except ValueError:
        return False
    return True
