"""A trial trained again, and compared with its stored epochs."""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from optuna.trial import FrozenTrial

from search.driver.sealed import scored_as, test_scorings
from search.driver.verify.comparison import Check, check, differing
from search.driver.verify.recomputed import again_problems, decoded_test, scored_names
from search.plan.make_plan import plan_from_rules
from search.plan.plan import Plan, training_of
from search.plan.records import Records
from search.stages import Stage
from search.trials import epochs_of
from trainables.common.errors import InvalidInput
from trainables.training.spec import EMBED_MS, EpochRecord, TrialSpec
from trainables.training.trainable import trainable_class

COMPARED = ("loss", "reported", "metrics", "batches", "used", "distinct_proxies")
"""The keys of an epoch that a training repeats, unlike its times."""


def trial_to_retrain(search: Records, text: str) -> tuple[str, FrozenTrial]:
    """Return the study and the trial that ``text`` names, such as ``mpa:3``; raise if it cannot be trained again."""
    study, _, number = text.rpartition(":")
    if not (study and number.isdecimal()):
        raise InvalidInput(f"--retrain is {text!r}; give a loss and a trial's number, as in {search.losses[0]}:0.")
    trial, what = search.trial_of(study, int(number)), f"--retrain: {search.name}/{study} trial {int(number)}"
    if not epochs_of(trial):
        raise InvalidInput(f"{what} has no epoch yet; choose one that has.")
    if _on_gpu(epochs_of(trial)):
        import torch

        _, spec = _training(search, study, trial)
        if spec.trainable is None and not spec.training.deterministic:  # a user-defined training states its tolerance
            raise InvalidInput(
                f"{what} was trained on a GPU, where results are not reproducible bit for bit without "
                "training.deterministic: true; choose one that was trained with it, or on a CPU."
            )
        if not torch.cuda.is_available():
            raise InvalidInput(
                f"{what} was trained on a GPU and this machine has none; verify it where there is one of the same "
                "model."
            )
    return study, trial


def check_retrained(search: Records, study: str, trial: FrozenTrial) -> Iterator[Check]:
    """Train as many epochs of a trial as are stored, with as many threads as a worker uses, and compare them."""
    plan, spec = _training(search, study, trial)
    tolerance = 0.0 if spec.trainable is None else trainable_class(spec.trainable).tolerance
    same = f"the same within {tolerance:g}" if tolerance else "bit for bit the same"
    what, records = f"{search.name}/{study} trial {trial.number}", epochs_of(trial)
    threads, again = max(1, int(plan.config.resources.cpus_per_trial)), partial(_retested, search, plan, study, trial)
    problems = _epoch_problems(what, records, spec, threads, tolerance, again)
    yield check(f"{what}: {len(records)} epochs retrained, {same}", problems)


def _retested(
    search: Records, plan: Plan, study: str, trial: FrozenTrial, spec: TrialSpec, checkpoint: str
) -> Iterator[str]:
    """Score the ``checkpoint`` of a retrained final training on the test images, and compare with its scores."""
    loss, stage = search.study_of(study)
    if stage is not Stage.TEST or not search.openings:
        return
    selection, plan = search.frozen_selection, replace(plan, split=search.split)
    for record in search.openings:
        if scored_as(loss, trial)["per_image"] in scored_names(record):
            with decoded_test(Records(search.folder, plan), selection, record) as (images, _, _):
                models = [(loss, trial, spec, checkpoint)]
                scorings = test_scorings(plan, selection, models, images, gpu=_on_gpu(epochs_of(trial)))
                yield from again_problems(f"{search.name}/{study} trial {trial.number}", scorings[:1], record)


def _training(search: Records, study: str, trial: FrozenTrial) -> tuple[Plan, TrialSpec]:
    plan = plan_from_rules(search.folder)
    return plan, training_of(plan, *search.study_of(study), trial)


def _on_gpu(records: Sequence[EpochRecord]) -> bool:
    return any("memory" in record for record in records)


def _epoch_problems(
    what: str,
    records: Sequence[EpochRecord],
    spec: TrialSpec,
    threads: int,
    tolerance: float,
    again: Callable[[TrialSpec, str], Iterator[str]],
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
                before, after = ({key: of.get(key) for key in COMPARED} for of in (stored, record))
                yield from differing(
                    f"{what}{fold} epoch {record['epoch']} retrained, ",
                    before,
                    after,
                    lambda first, second: abs(first - second) <= tolerance,
                )
            training.wait_for_checkpoints()
            kept = [record["checkpoint"] for record in training.records if record["checkpoint"]]
            yield from again(training.spec, f"{folder}/{kept[-1]}")
        finally:  # also if the caller stops at the first problem: nothing may write to the folder when it is removed
            training.wait_for_checkpoints()
            training.end()
