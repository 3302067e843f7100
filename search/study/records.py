"""The epochs of a trial, as its user attributes hold them: ``epoch:<n>``, of a fold ``epoch:<fold>:<n>``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainables.training.epoch_record import EpochRecord

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_EPOCH = "epoch:"


def record_key(record: EpochRecord) -> str:
    """The user attribute that holds ``record``; keys sort in the order of the epochs."""
    fold = f"{record['fold']:03d}:" if "fold" in record else ""
    return f"{_EPOCH}{fold}{record['epoch']:06d}"


def record_keys(trial: "FrozenTrial") -> list[str]:
    """The keys of all epochs that ``trial`` has reported, in order."""
    return sorted(key for key in trial.user_attrs if key.startswith(_EPOCH))


def epochs_of(trial: "FrozenTrial") -> list[EpochRecord]:
    """The records of all epochs that ``trial`` has reported, in order."""
    return [trial.user_attrs[key] for key in record_keys(trial)]


def epochs_trained(trials: "Sequence[FrozenTrial]") -> int:
    """The number of epochs that ``trials`` have reported."""
    return sum(len(record_keys(trial)) for trial in trials)
