"""Cross-validation: one configuration trained once a fold, one fold after the other, as if it were one training."""

import gc

import torch

from trainables.spec import EpochRecord, TrialSpec
from trainables.training.checkpoints import finished_records
from trainables.training.train import Training


def training_on(spec: TrialSpec, *devices: torch.device) -> Training:
    """The training of ``spec``, which has no folds; on several devices each batch is shared by as many processes."""
    if len(devices) == 1:
        return Training(spec, *devices)
    from trainables.training.distributed.training import FirstRank  # torch.distributed, which one process needs not

    return FirstRank(spec, devices)


class CrossValidation:
    """The trainings of a spec with folds, resumed where an earlier attempt stopped.

    It is used as a :class:`Training` is. A record says its ``fold``, from 1, and counts its ``epoch`` within the
    fold. Fold k keeps its checkpoints below ``fold-<k>/``; of one that is done, the records and the best model stay.
    """

    def __init__(self, spec: TrialSpec, *devices: torch.device) -> None:
        self.spec = spec
        self._devices = devices
        self._fold = 0
        self._training: Training | None = None
        self.records: list[EpochRecord] = []
        self._next_fold()

    @property
    def finished(self) -> bool:
        """Whether all folds are trained."""
        return self._training is None

    def run_epoch(self) -> EpochRecord:
        """Train the next epoch of the fold that is being trained.

        Raises:
            Diverged: the loss or the embeddings are not finite.
            Exception: the checkpoints of the epoch before could not be written.
        """
        assert self._training is not None, "all folds are trained already"
        record = self._of_fold(self._training.run_epoch())
        self.records.append(record)
        if self._training.finished:
            self._training.close()
            self._next_fold()
        return record

    def wait_for_checkpoints(self) -> None:
        """Wait until the checkpoints of the last epoch are written; those of a fold that is done are.

        Raises:
            Exception: they could not be written.
        """
        if self._training is not None:
            self._training.wait_for_checkpoints()

    def _next_fold(self) -> None:
        """Go to the first fold that is not done, taking along what earlier attempts left."""
        self._training = None
        gc.collect()  # modules refer to themselves through hooks; the last fold's memory is needed now
        while self._training is None and self._fold < len(self.spec.folds):
            self._fold += 1
            self.records += map(self._of_fold, self._left_of(self.spec.of_fold(self._fold)))

    def _left_of(self, spec: TrialSpec) -> list[EpochRecord]:
        """The records that earlier attempts left of a fold; where some are missing, the fold is being trained."""
        if (records := finished_records(spec.directory, spec.digest)) is not None:
            return records
        training = training_on(spec, *self._devices)
        if training.finished:  # the attempt died between the last epoch and closing
            training.close()
        else:
            self._training = training
        return training.records

    def _of_fold(self, record: EpochRecord) -> EpochRecord:
        checkpoint = record["checkpoint"] and f"fold-{self._fold}/{record['checkpoint']}"
        return {**record, "fold": self._fold, "checkpoint": checkpoint}


def begin(spec: TrialSpec, *devices: torch.device) -> Training | CrossValidation:
    """The training of ``spec``, or its cross-validation where it has folds, begun or gone on with on ``devices``."""
    return CrossValidation(spec, *devices) if spec.folds else training_on(spec, *devices)
