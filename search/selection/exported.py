"""Which trained model of a loss is handed out: settled with the choice, before the test is opened."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from search.selection.confirmation import Confirmation

EXPORTED = (
    "of the models that are trained for the test with the chosen configuration, the first seed's, of the first fold "
    "where there are folds; where that training fails, the next one's"
)
"""Never the one with the best score: the mean over all seeds is what can be expected of it."""


def exported_trial(finals: Sequence[FrozenTrial], chosen: Confirmation) -> FrozenTrial | None:
    """The one of the ``finals`` of a loss whose model is handed out; None where none is trained."""
    return next(
        (
            trial
            for trial in finals
            if trial.state == TrialState.COMPLETE and trial.user_attrs["configuration"] == chosen.number
        ),
        None,
    )
