"""The epochs of a trial, as its user attributes hold them: ``epoch:<n>``, of a fold ``epoch:<fold>:<n>``."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

EPOCH = "epoch:"
"""What the keys begin with."""


def record_key(record: EpochRecord) -> str:
    """The user attribute that holds ``record``; keys sort in the order of the epochs."""
    fold = f"{record['fold']:03d}:" if "fold" in record else ""
    return f"{EPOCH}{fold}{record['epoch']:06d}"


def record_keys(trial: "FrozenTrial") -> list[str]:
    """The keys of all epochs that ``trial`` has reported, in order."""
    return sorted(key for key in trial.user_attrs if key.startswith(EPOCH))


def epochs_of(trial: "FrozenTrial") -> list[EpochRecord]:
    """The records of all epochs that ``trial`` has reported, in order."""
    return [trial.user_attrs[key] for key in record_keys(trial)]


def count_epochs(trial: "FrozenTrial") -> int:
    """The number of epochs that ``trial`` has reported."""
    return sum(key.startswith(EPOCH) for key in trial.user_attrs)


def epochs_trained(trials: "Iterable[FrozenTrial]") -> int:
    """The number of epochs that ``trials`` have reported."""
    return sum(map(count_epochs, trials))
