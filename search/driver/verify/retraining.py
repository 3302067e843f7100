"""A trial trained again, and compared with its stored epochs."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial

from search.driver.verify.comparison import Check, check, differing
from search.plan.make_plan import plan_from_rules
from search.plan.plan import Plan, training_of
from search.plan.stored import StoredSearch
from search.stages import Stage, short_study_name
from search.trials import epochs_of
from trainables.mistakes import Mistakes
from trainables.spec import EMBED_MS, EpochRecord, TrialSpec
from trainables.training.trainable import trainable_class

COMPARED = ("loss", "reported", "metrics", "batches", "used", "distinct_proxies")
"""The keys of an epoch that a training repeats; its times it does not."""


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
        found = cls(search=search, study=study, number=int(number))
        records = epochs_of(found._trial)
        what = f"--retrain: {search.name}/{study} trial {found.number}"
        if not records:
            raise Mistakes(f"{what} has no epoch yet; choose one that has.")
        if _on_gpu(records):
            _, spec = found._training()
            if spec.trainable is None and not spec.training.deterministic:  # a user-defined one states its tolerance
                raise Mistakes(
                    f"{what} was trained on a GPU, where results are not reproducible bit for bit without "
                    "training.deterministic: true; choose one that was trained with it, or on a CPU."
                )
            if not _gpu_is_here():
                raise Mistakes(
                    f"{what} was trained on a GPU and this machine has none; verify it where there is one of the same "
                    "model."
                )
        return found

    @property
    def _trial(self) -> FrozenTrial:
        return self.search.trial_of(self.study, self.number)

    def _training(self) -> tuple[Plan, TrialSpec]:
        """Return the plan of the search, and the training of the trial that follows from it."""
        plan = plan_from_rules(self.search.folder)
        named = {short_study_name(loss, stage): (loss, stage) for loss in self.search.losses for stage in Stage}
        return plan, training_of(plan, *named[self.study], self._trial)

    def check(self) -> Iterator[Check]:
        """Train as many epochs as are stored, with as many threads as a worker uses, and compare them."""
        plan, spec = self._training()
        records = epochs_of(self._trial)
        threads = max(1, int(plan.config.resources.cpus_per_trial))
        tolerance = 0.0 if spec.trainable is None else trainable_class(spec.trainable).tolerance
        same = f"the same within {tolerance:g}" if tolerance else "bit for bit the same"
        what = f"{self.search.name}/{self.study} trial {self.number}"
        problems = _epoch_problems(what, records, spec, threads, tolerance)
        yield check(f"{what}: {len(records)} epochs retrained, {same}", problems)


def _on_gpu(records: Sequence[EpochRecord]) -> bool:
    return any("memory" in record for record in records)


def _gpu_is_here() -> bool:
    import torch

    return torch.cuda.is_available()


def _epoch_problems(
    what: str, records: Sequence[EpochRecord], spec: TrialSpec, threads: int, tolerance: float
) -> Iterator[str]:
    import torch

    from trainables.training.cross_validation import begin

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        training = begin(replace(spec, directory=folder), torch.device("cuda" if _on_gpu(records) else "cpu"))
        try:
            for stored in records:
                record = training.run_epoch()
                if EMBED_MS in record["metrics"]:  # a time, which no training repeats
                    record["metrics"][EMBED_MS] = stored["metrics"].get(EMBED_MS, math.nan)
                fold = f" fold {record['fold']}" if "fold" in record else ""
                before, again = ({key: of.get(key) for key in COMPARED} for of in (stored, record))
                yield from differing(
                    f"{what}{fold} epoch {record['epoch']} retrained:",
                    before,
                    again,
                    lambda first, second: abs(first - second) <= tolerance,
                )
        finally:  # also if the caller stops at the first problem: nothing may write to the folder when it is removed
            training.wait_for_checkpoints()
            training.end()
