"""What rank 0 and the others say to each other beside tensors: orders to them, answers from them."""

import pickle
import traceback
from dataclasses import dataclass

from trainables.mistakes import Failure
from trainables.spec import TrialSpec


class RankLost(Failure):
    """A process that a training shares its batches with died, or did not answer."""


@dataclass(frozen=True, kw_only=True)
class Begin:
    """Join the ranks, and make the training of ``spec`` ready.

    ``device`` is a name as torch's, ``folder`` where the ranks find each other, ``dtype`` and ``threads`` are torch's
    in rank 0's process, and ``optimizer`` is what ``torch.save`` made of the state of its optimiser.
    """

    spec: TrialSpec
    rank: int
    ranks: int
    device: str
    folder: str
    patience_s: float
    dtype: str
    threads: int
    optimizer: bytes


@dataclass(frozen=True, kw_only=True)
class TrainEpoch:
    """Train an epoch: its batches, as numbers of images, and the learning rates of the optimiser's groups."""

    epoch: int
    batches: list[list[int]]
    learning_rates: list[float]


@dataclass(frozen=True)
class Done:
    """The last order is carried out."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What ended a rank, and where."""

    error: Exception
    where: str

    @classmethod
    def of(cls, error: Exception) -> "Failed":
        """``error`` as it can be sent."""
        where = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # some cannot be pickled, or not be made again
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return cls(error=error, where=where)
