"""All checks of a search in the order in which its records depend on each other; the checks of models and summary."""

import hashlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from optuna.trial import FrozenTrial

from search.driver.sealed_test import scores_digest
from search.driver.verify.records import Check, Records, as_json, check, differing, plan_from_rules, records_of
from search.driver.verify.scores import check_ledger, check_scores
from search.driver.verify.stages import (
    check_baselines,
    check_choice,
    check_confirmations,
    check_final_trainings,
    check_noise_trials,
    check_split,
    check_trained_on_opened,
    check_warning,
    stored_selection,
    with_images,
)
from search.driver.verify.trials import check_files, check_prunings, check_studies
from search.plan.plan import Plan, training_of
from search.plan.runs import RunFolder, stored_config, stored_split
from search.plan.stored import StoredSearch
from search.report.models import chosen_model
from search.report.summary import summarise
from search.selection import ImageSet, Ledger, Selection, study_digest
from search.stages import Stage, short_study_name
from search.study import stored_trials
from search.trials import epochs_of
from search.trust import CHECKPOINTS, STORAGE, check_addresses, check_code, own_code, trusts_code
from trainables.inference.model_files import DESCRIPTION, WEIGHTS
from trainables.mistakes import Mistakes
from trainables.spec import EMBED_MS, EpochRecord, TrialSpec
from trainables.training.trainable import trainable_class

LASTING = ("best", "confirmed", "final", "test")
"""Keys of a loss in the summary that never become empty again."""


def verify(folder: RunFolder) -> Iterator[Check]:
    """Yield the checks of the search in ``folder``, up to the first that finds a problem.

    Raises:
        Mistakes: it names a place that the user did not allow; or code, after the checks that import none.
    """
    code = code_named(folder)
    if trusts_code(folder.path, code):
        yield from guarded(lambda: _checks(folder))
        return
    problem = None
    for found in guarded(lambda: _checks_without_code(folder)):
        problem = found.problem
        yield found
    if not problem:
        check_code(folder.path, code)


def code_named(folder: RunFolder) -> set[str]:
    """Return the code that a stored search names, and check that its records may be contacted.

    Raises:
        Mistakes: they may not.
    """
    try:
        content = stored_config(folder)
    except Mistakes:  # the checks report it
        return set()
    check_addresses(folder.path, content, (STORAGE, CHECKPOINTS))
    return own_code(content)


def _checks_without_code(folder: RunFolder) -> Iterator[Check]:
    """Yield the checks of the digests: of the split, the choice, its studies, the ledger's lines, and the scores."""
    yield Check(f"split.json: its digest {stored_split(folder).digest[:12]}")
    selection = stored_selection(folder)
    if selection is None:
        yield Check("selection.json: the choice", is_there=False)
        return
    yield Check(f"selection.json: its digest {selection.digest[:12]}")
    yield check_warning(folder, selection)
    yield from check_baselines(folder, selection)
    yield check("the studies: their digests, from selection.json", _study_problems(folder, selection))
    yield check("the ledger: no line was changed, removed or moved", Ledger(folder.openings).broken_links())
    for record in json.loads(folder.test.read_text())["openings"] if folder.test.exists() else ():
        what = f"test.json opening {record['id'][:12]}"
        yield check(f"{what}: its digest", differing(f"{what} digest", record["digest"], scores_digest(record)))


def _study_problems(folder: RunFolder, selection: Selection) -> Iterator[str]:
    with closing(StoredSearch(folder)) as stored:
        for name, digest in selection.studies.items():
            found = study_digest(stored_trials(stored.storage, name)) if stored.storage else None
            yield from differing(f"{name} digest", digest, found)


def guarded(checks: Callable[[], Iterator[Check]]) -> Iterator[Check]:
    """Yield ``checks`` up to the first problem; an error raised by unreadable records is a problem, too."""
    try:
        for found in checks():
            yield found
            if found.problem:
                return
    except Mistakes as mistakes:
        yield Check("the records", mistakes.sentences[0])
    except Exception as error:  # changed records may raise any error
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        yield Check("the records", f"The next check cannot read them ({reason}).")


def _checks(folder: RunFolder) -> Iterator[Check]:
    plan, training = with_images(plan_from_rules(folder))
    yield from check_split(plan)
    yield from check_trained_on_opened(folder, training)
    records = records_of(plan)
    if records is None:
        yield _without_studies(plan)
        return
    if Stage.NOISE in plan.config.stages:
        yield from check_studies(records, Stage.NOISE)
    yield from check_studies(records, Stage.SEARCH)
    yield from check_studies(records, Stage.SELECT)
    yield from check_studies(records, Stage.TEST)
    yield from check_noise_trials(records)
    yield from check_prunings(records)
    yield from check_confirmations(records)
    selection = stored_selection(folder)
    if selection is not None:
        yield from check_baselines(folder, selection)
    yield from check_choice(records)
    if selection is not None:
        yield from _after_the_choice(records, selection, training)
    yield from check_files(records)
    yield from check_summary(records)


def _without_studies(plan: Plan) -> Check:
    """Check that a search without studies has no results either."""
    later = [path.name for path in (plan.folder.selection, plan.folder.test, plan.folder.summary) if path.exists()]
    problem = f"The studies are missing, but {' and '.join(later)} exist{'s' * (len(later) == 1)}." if later else None
    return Check("the studies", problem, is_there=False)


def _after_the_choice(records: Records, selection: Selection, training: ImageSet) -> Iterator[Check]:
    yield from check_final_trainings(records, selection)
    yield from check_ledger(records, selection)
    yield from check_scores(records, selection, training)
    yield from check_models(records, selection)


def check_models(records: Records, selection: Selection) -> Iterator[Check]:
    """Check each written model folder: its description, and its weights against the checkpoint of the chosen model."""
    for loss in selection.models:
        if records.plan.folder.model(loss).is_dir():
            yield check(f"models/{loss}: the exported model", _model_problems(records, selection, loss))


def _model_problems(records: Records, selection: Selection, loss: str) -> Iterator[str]:
    folder = records.plan.folder.model(loss)
    with closing(StoredSearch(records.plan.folder)) as stored_search:
        model = chosen_model(stored_search, selection, loss)
    if model is None:
        yield f"models/{loss}: the model exists, but no final training does."
        return
    digest = hashlib.sha256(model.weights).hexdigest()
    stored = json.loads((folder / DESCRIPTION).read_text())
    described = {**model.spec.to_json(), "weights_sha256": digest}
    yield from differing(f"models/{loss} {DESCRIPTION}", stored, as_json(described))
    found = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    yield from differing(f"models/{loss} {WEIGHTS}", found, digest)


def check_summary(records: Records) -> Iterator[Check]:
    """Check ``summary.json`` by deriving it again; during a stage, check only that no result was lost."""
    if _is_under_way(records):
        what = "summary.json (updated at the end of the current stage)"
        yield Check(what, next(_vanished(records), None), is_there=False)
        return
    yield check("summary.json: counts, values, intervals, curves, diagnostics and times", _summary_problems(records))


def _is_under_way(records: Records) -> bool:
    """Return True if a stage or a trial has not ended."""
    search, config = records.search, records.plan.config
    trials = [trial for stage in Stage for loss in records.losses(stage) for trial in search.trials(loss, stage)]
    return not all(map(search.is_done, config.stages)) or not all(trial.state.is_finished() for trial in trials)


def _vanished(records: Records) -> Iterator[str]:
    """Yield the results in the stored summary that can no longer be derived from the records."""
    path = records.plan.folder.summary
    before = json.loads(path.read_text())["losses"] if path.exists() else {}
    now = summarise(records.search).model_dump(mode="json")["losses"]
    for loss, entry in before.items():
        for key in LASTING:
            if entry[key] is not None and now[loss][key] is None:
                yield from differing(f"summary.json {loss} {key}", entry[key], None)


def _summary_problems(records: Records) -> Iterator[str]:
    """Compare the stored summary with the one derived again."""
    path = records.plan.folder.summary
    if not path.exists():
        yield f"summary.json: nothing is stored, but all stages of {records.plan.config.name} are done."
        return
    anew = summarise(records.search).model_dump(mode="json")
    yield from differing("summary.json", json.loads(path.read_text()), as_json(anew))


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
        if _on_gpu(records) and not _is_deterministic(search, study, int(number)):
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained on a GPU, where results are not "
                "reproducible bit for bit without training.deterministic: true; choose one that was trained with it, "
                "or on a CPU."
            )
        if _on_gpu(records) and not _gpu_is_here():
            raise Mistakes(
                f"--retrain: {search.name}/{study} trial {number} was trained on a GPU and this machine has none; "
                "verify it where there is one of the same model."
            )
        return cls(search=search, study=study, number=int(number))

    def check(self) -> Iterator[Check]:
        """Train as many epochs as are stored, with as many threads as a worker uses, and compare them."""
        trial = self.search.trial_of(self.study, self.number)
        plan, spec = _training_again(self.search, self.study, trial)
        what = f"{self.search.name}/{self.study} trial {self.number}"
        threads = max(1, int(plan.config.resources.cpus_per_trial))
        tolerance = 0.0 if spec.trainable is None else trainable_class(spec.trainable).tolerance
        same = f"the same within {tolerance:g}" if tolerance else "bit for bit the same"
        yield check(
            f"{what}: {len(epochs_of(trial))} epochs retrained, {same}",
            _epoch_problems(what, trial, spec, threads, tolerance),
        )


def _training_again(search: StoredSearch, study: str, trial: FrozenTrial) -> tuple[Plan, TrialSpec]:
    """Return the plan of a search, and the training of a trial that follows from it."""
    plan = plan_from_rules(search.folder)
    named = {short_study_name(loss, stage): (loss, stage) for loss in search.losses for stage in Stage}
    loss, stage = named[study]
    return plan, training_of(plan, loss, stage, trial)


def _is_deterministic(search: StoredSearch, study: str, number: int) -> bool:
    spec = _training_again(search, study, search.trial_of(study, number))[1]
    return spec.trainable is not None or spec.training.deterministic  # a user-defined training states its tolerance


def _on_gpu(records: Sequence[EpochRecord]) -> bool:
    return any("memory" in record for record in records)


def _gpu_is_here() -> bool:
    import torch

    return torch.cuda.is_available()


def _epoch_problems(what: str, trial: FrozenTrial, spec: TrialSpec, threads: int, tolerance: float) -> Iterator[str]:
    import torch

    from trainables.training.cross_validation import begin

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        device = torch.device("cuda" if _on_gpu(epochs_of(trial)) else "cpu")
        training = begin(replace(spec, directory=folder), device)
        try:
            for stored in epochs_of(trial):
                record = training.run_epoch()
                if EMBED_MS in record["metrics"]:  # a time, which no training repeats
                    record["metrics"][EMBED_MS] = stored["metrics"].get(EMBED_MS, math.nan)
                fold = f" fold {record['fold']}" if "fold" in record else ""
                of_epoch = f"{what}{fold} epoch {record['epoch']} retrained,"
                for key in ("loss", "reported", "metrics"):
                    found = _settled(stored.get(key), record.get(key), tolerance)
                    yield from differing(f"{of_epoch} {key}", stored.get(key), found)
                yield from differing(f"{of_epoch} batches", stored["batches"], record["batches"])
                for key in ("used", "distinct_proxies"):
                    yield from differing(f"{of_epoch} {key}", stored.get(key), record.get(key))
        finally:  # also if the caller stops at the first problem: nothing may write to the folder when it is removed
            training.wait_for_checkpoints()
            training.end()


def _settled(stored: Any, found: Any, tolerance: float) -> Any:
    """Return ``found``, a number or numbers by name, with those of ``stored`` that differ by ``tolerance`` at most."""
    if isinstance(stored, Mapping) and isinstance(found, Mapping):
        return {name: _settled(stored.get(name), value, tolerance) for name, value in found.items()}
    if isinstance(stored, float) and isinstance(found, float) and abs(stored - found) <= tolerance:
        return stored
    return found
