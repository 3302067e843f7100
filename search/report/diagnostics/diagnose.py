"""All that a loss's study says about itself."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial

from search.report.diagnostics.edges import edges
from search.report.diagnostics.finding import Finding
from search.report.diagnostics.replicates import replicates
from spaces.configuration import Configuration
from spaces.space import Space
from spaces.value import Value
from trainables.losses import LOSSES
from trainables.training.config import TrainingConfig


def diagnose(
    loss: str,
    space: Space,
    training: TrainingConfig,
    trials: Sequence[FrozenTrial],
    best: Mapping[str, Value] | None,
) -> tuple[Finding, ...]:
    """The findings about a search study of ``loss``; none where it is too small to say anything."""
    findings = tuple(replicates(trials))
    if best is None:
        return findings
    return (*edges(space, trials, best, lambda name, value: _allowed(loss, training, name, value)), *findings)


def _allowed(loss: str, training: TrainingConfig, name: str, value: Value) -> bool:
    configuration = Configuration({name: value})
    try:
        LOSSES[loss](num_classes=2, embedding_dim=2, **configuration.hyperparameters)
        replace(training, **configuration.training)
    except ValueError:
        return False
    return True
