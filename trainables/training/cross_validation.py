"""Cross-validation: the trainings of all folds, one after the other, with the interface of one training."""

import gc

import torch

from trainables.training.checkpoints import finished_records
from trainables.training.epoch_training import EpochTraining
from trainables.training.own import OwnTraining
from trainables.training.spec import EpochRecord, TrialSpec
from trainables.training.train import Training


def begin(spec: TrialSpec, device: torch.device) -> "EpochTraining | CrossValidation":
    """Begin or resume the training of ``spec`` on ``device``; its cross-validation if it has folds."""
    return CrossValidation(spec, device) if spec.folds else training_class(spec)(spec, device)


def training_class(spec: TrialSpec) -> type[Training | OwnTraining]:
    return Training if spec.trainable is None else OwnTraining


class CrossValidation:
    """The trainings of a spec with folds, resumed where an earlier attempt stopped; used like one training.

    A record has its ``fold``, from 1, and its ``epoch`` within the fold, whose checkpoints are below ``fold-<k>/``.
    """

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        self.spec = spec
        self._device = device
        self._fold = 0
        self._training: EpochTraining | None = None
        self.records: list[EpochRecord] = []
        self._next_fold()

    @property
    def finished(self) -> bool:
        return self._training is None

    def run_epoch(self) -> EpochRecord:
        """Train the next epoch of the current fold, see :meth:`EpochTraining.run_epoch`."""
        assert self._training is not None, "all folds are trained already"
        record = self._of_fold(self._training.run_epoch())
        self.records.append(record)
        if self._training.finished:
            self._training.close()
            self.end()
            self._next_fold()
        return record

    def wait_for_checkpoints(self) -> None:
        """Wait until the checkpoints of the last epoch are written; those of finished folds already are."""
        if self._training is not None:
            self._training.wait_for_checkpoints()

    def end(self) -> None:
        """Release what the training of the current fold holds beside memory."""
        if self._training is not None:
            self._training.end()

    def _next_fold(self) -> None:
        """Advance to the first unfinished fold, collecting the records of earlier attempts."""
        self._training = None
        if 0 < self._fold < len(self.spec.folds):
            gc.collect()  # modules refer to themselves through hooks; the last fold's memory is needed now
        while self._training is None and self._fold < len(self.spec.folds):
            self._fold += 1
            spec = self.spec.of_fold(self._fold)
            records = finished_records(spec.directory, spec.digest)
            if records is None:
                training = training_class(spec)(spec, self._device)
                records = training.records
                if training.finished:  # the attempt died between the last epoch and closing
                    training.close()
                    training.end()
                else:
                    self._training = training
            self.records += map(self._of_fold, records)

    def _of_fold(self, record: EpochRecord) -> EpochRecord:
        checkpoint = record["checkpoint"] and f"fold-{self._fold}/{record['checkpoint']}"
        return {**record, "fold": self._fold, "checkpoint": checkpoint}
