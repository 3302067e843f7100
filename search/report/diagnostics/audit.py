"""What a search's pruning was worth."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from search.report.results.audit import PruningAudit
from search.selection.confirmation import finalists
from search.study.configurations import configuration_of, mean_value
from search.study.records import epochs_of


def pruning_audit(
    searched: Sequence[FrozenTrial], audited: Sequence[FrozenTrial], *, places: int, epochs: int
) -> PruningAudit | None:
    """The audit of a loss; None before one of its trainings is complete, or where nothing else is.

    Args:
        searched: the trials of the search.
        audited: the pruned ones of them that were trained again.
        places: how many finalists there are.
        epochs: of a whole training.
    """
    values = [trial.value for trial in audited if trial.state == TrialState.COMPLETE and trial.value is not None]
    if not values:
        return None
    best = [mean_value(searched, configuration_of(trial)) for trial in finalists(searched, places)[:places]]
    known = [value for value in best if value is not None]
    if not known:
        return None
    from scipy.stats import binomtest  # half a second, for those who audit

    pruned = [trial for trial in searched if trial.state == TrialState.PRUNED]
    bar = min(known)
    wrongly = sum(value >= bar for value in values)
    low, high = binomtest(wrongly, len(values)).proportion_ci()
    return PruningAudit(
        pruned=len(pruned),
        epochs_saved=sum(epochs - len(epochs_of(trial)) for trial in pruned),
        audited=len(values),
        bar=bar,
        wrongly=wrongly,
        ci95=(float(low), float(high)),
        best=max(values),
    )
