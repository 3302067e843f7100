"""The check of one training: repeated in this process and compared bit for bit with the stored epochs."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial

from search.driver.verify.records import Check, check, differing, plan_from_rules
from search.plan.plan import training_of
from search.plan.stored import StoredSearch
from search.stages import Stage, short_study_name
from search.trials import epochs_of
from trainables.mistakes import Mistakes
from trainables.spec import TrialSpec


@dataclass(frozen=True, kw_only=True)
class Retraining:
    """The trial ``number`` of the study ``study`` (such as ``mpa`` or ``mpa@final``) of a search."""

    search: StoredSearch
    study: str
    number: int

    @classmethod
    def of(cls, search: StoredSearch, text: str) -> "Retraining":
        """Return the retraining of the trial named by ``text``, such as ``mpa:3``.

        Raises:
            Mistakes: there is no such trial, or its training cannot be reproduced bit for bit.
        """
        study, _, number = text.rpartition(":")
        if not (study and number.isdecimal()):
            raise Mistakes(f"--retrain is {text!r}; give a loss and a trial's number, as in {search.losses[0]}:0.")
        records = epochs_of(search.trial_of(study, int(number)))
        if not records:
            raise Mistakes(f"--retrain: {search.name}/{study} trial {number} has no epoch yet; choose one that has.")
        if any("memory" in record for record in records):
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained on a GPU, where results are not "
                "reproducible bit for bit; choose one that was trained on a CPU."
            )
        if any("together" in record for record in records):
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained in a stack (resources.stack), whose "
                "rounding differs from a single training; choose one that was not."
            )
        return cls(search=search, study=study, number=int(number))

    def check(self) -> Iterator[Check]:
        """Train as many epochs as are stored, with as many threads as a worker uses, and compare them."""
        trial = self.search.trial_of(self.study, self.number)
        plan = plan_from_rules(self.search.folder)
        named = {short_study_name(loss, stage): (loss, stage) for loss in self.search.losses for stage in Stage}
        loss, stage = named[self.study]
        spec = training_of(plan, loss, stage, trial)
        what = f"{self.search.name}/{self.study} trial {self.number}"
        threads = max(1, int(plan.config.resources.cpus_per_trial))
        yield check(
            f"{what}: {len(epochs_of(trial))} epochs retrained, bit for bit the same",
            _epoch_problems(what, trial, spec, threads),
        )


def _epoch_problems(what: str, trial: FrozenTrial, spec: TrialSpec, threads: int) -> Iterator[str]:
    import torch

    from trainables.training.cross_validation import begin

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        training = begin(replace(spec, directory=folder), torch.device("cpu"))
        try:
            for stored in epochs_of(trial):
                record = training.run_epoch()
                fold = f" fold {record['fold']}" if "fold" in record else ""
                of_epoch = f"{what}{fold} epoch {record['epoch']} retrained,"
                yield from differing(f"{of_epoch} loss", stored["loss"], record["loss"])
                yield from differing(f"{of_epoch} metrics", stored["metrics"], record["metrics"])
                yield from differing(f"{of_epoch} batches", stored["batches"], record["batches"])
                yield from differing(f"{of_epoch} used", stored.get("used"), record.get("used"))
        finally:  # also if the caller stops at the first problem: nothing may write to the folder when it is removed
            training.wait_for_checkpoints()
