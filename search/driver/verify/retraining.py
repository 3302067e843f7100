"""One training repeated in this process, and compared with the stored one bit for bit."""

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
    """The trial ``number`` of the study ``study``, as in ``mpa`` or ``mpa@final``, of a search."""

    search: StoredSearch
    study: str
    number: int

    @classmethod
    def of(cls, search: StoredSearch, text: str) -> "Retraining":
        """The trial that ``text`` names, as in ``mpa:3``.

        Raises:
            Mistakes: there is none, or it cannot be trained again with the same bits.
        """
        study, _, number = text.rpartition(":")
        if not (study and number.isdecimal()):
            raise Mistakes(f"--retrain is {text!r}; give a loss and a trial's number, as in {search.losses[0]}:0.")
        records = epochs_of(search.trial_of(study, int(number)))
        if not records:
            raise Mistakes(f"--retrain: {search.name}/{study} trial {number} has no epoch yet; name one that has.")
        if any("memory" in record for record in records):
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained on a GPU, where the same training "
                "has not the same bits; name one that was trained on a CPU."
            )
        if any("together" in record for record in records):
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained in a stack (resources.stack), which "
                "rounds otherwise than a training by itself; name one that was not."
            )
        return cls(search=search, study=study, number=int(number))

    def check(self) -> Iterator[Check]:
        """Train as many epochs as are stored, with as many threads as a worker has."""
        trial = self.search.trial_of(self.study, self.number)
        plan = plan_from_rules(self.search.folder)
        named = {short_study_name(loss, stage): (loss, stage) for loss in self.search.losses for stage in Stage}
        loss, stage = named[self.study]
        spec = training_of(plan, loss, stage, trial)
        what = f"{self.search.name}/{self.study} trial {self.number}"
        threads = max(1, int(plan.config.resources.cpus_per_trial))
        yield check(
            f"{what}: trained again, {len(epochs_of(trial))} epochs with the same bits",
            _problems(what, trial, spec, threads),
        )


def _problems(what: str, trial: FrozenTrial, spec: TrialSpec, threads: int) -> Iterator[str]:
    import torch

    from trainables.training.cross_validation import begin

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        training = begin(replace(spec, directory=folder), torch.device("cpu"))
        try:
            for stored in epochs_of(trial):
                record = training.run_epoch()
                fold = f" fold {record['fold']}" if "fold" in record else ""
                of_epoch = f"{what}{fold} epoch {record['epoch']}, trained again,"
                yield from differing(f"{of_epoch} loss", stored["loss"], record["loss"])
                yield from differing(f"{of_epoch} metrics", stored["metrics"], record["metrics"])
                yield from differing(f"{of_epoch} batches", stored["batches"], record["batches"])
                yield from differing(f"{of_epoch} used", stored.get("used"), record.get("used"))
        finally:  # also where nobody asks beyond the first problem: the folder goes, and may not be written to
            training.wait_for_checkpoints()
