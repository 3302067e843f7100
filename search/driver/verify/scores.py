"""Checks of the scores of an opening, by the kept models or by the answer of a vault; and of a retrained trial."""

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import FrozenTrial, TrialState

from search.driver import sealed
from search.driver.inputs import sealed_images
from search.driver.make_plan import plan_from_rules
from search.driver.verify.studies import Check, check, differing
from search.records import (
    BaselineScoring,
    FailedScoring,
    ImageSet,
    ScoredOpening,
    Scoring,
    Selection,
    baseline_entry,
    images_in,
)
from search.records.plan import Plan, training_of
from search.records.records import Records
from search.stages import BASELINES, Stage
from search.trials import epochs_of
from search.vault.protocol import content_of
from trainables.common.errors import InvalidInput
from trainables.common.files import digest_of, json_digest, read_arrays, read_json, reading
from trainables.data.store.store_spec import StoreSpec
from trainables.metrics import is_retrieval, metric_name, split_subset
from trainables.training.spec import EMBED_MS, EpochRecord, TrialSpec, defined
from trainables.training.trainable import trainable_class

if TYPE_CHECKING:
    from trainables.data.store.view import StoreView

# The scores of an opening.


@contextmanager
def decoded_anew(images: StoreSpec) -> Iterator[Path]:
    """Decode ``images`` into a temporary store: the cached one may be of an earlier state of the files."""
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        yield replace(images, cache=folder).make()


@contextmanager
def decoded_test(search: Records, selection: Selection, record: ScoredOpening) -> Iterator[tuple[StoreSpec, Path, Any]]:
    """Decode the images of a scored opening anew; yield them, their store, and what the ledger knows of them."""
    openings = search.ledger.of_selection(selection.digest)
    (opening,) = (entry for entry in openings if entry.id == record.id)
    images = sealed_images(search.plan, selection, opening)
    with decoded_anew(images) as store:
        yield replace(images, cache=str(store.parent)), store, opening.images


def check_scores(search: Records, selection: Selection, record: ScoredOpening, training: ImageSet) -> Iterator[Check]:
    """Check the ``record`` of an opening in ``test.json``; ``training`` are the images of the training half."""
    from trainables.data.store.view import Store

    plan, what = search.plan, f"test.json opening {record.id[:12]}"
    with decoded_test(search, selection, record) as (images, store, opened):
        found = images_in(store)
        stored = {
            "images": opened and opened.digest,
            "file of images": opened and search.ledger.image_set(opened).digest,
            "overlap with the training images": record.overlap,
            "copies within the test set": record.copies,
        }
        overlap = int(found.known_images(training).sum())
        anew = dict(zip(stored, (found.digest, found.digest, overlap, found.copies), strict=True))
        yield check(f"{what}: its images, and how many of them trained", differing(f"{what} ", stored, anew))
        yield _scored_check(what, search, selection, record)
        problems = _metric_problems(what, plan, selection, record, Store(store).subset(plan.split.test))
        yield check(f"{what}: its metrics, from the results of each image", problems)
        scorings = kept_scorings(search, selection, record, images)
        yield check(f"{what}: its metrics, from the kept models", again_problems(what, scorings, record))


def kept_scorings(
    search: Records, selection: Selection, record: ScoredOpening, images: StoreSpec
) -> list[Scoring | BaselineScoring]:
    """Return the requests to score on ``images`` the kept models of a ``record``, and the baselines."""
    import torch

    scored = {*(model.per_image for model in record.scores), *(model.per_image for model in record.failed)}
    finals = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    models = [sealed.final_model(search.plan, *of) for of in finals if sealed.scored_as(*of)["per_image"] in scored]
    return sealed.test_scorings(search.plan, selection, models, images, gpu=torch.cuda.is_available())


def _scored_check(what: str, search: Records, selection: Selection, record: ScoredOpening) -> Check:
    """Check that exactly the frozen baselines and the final trainings that did not fail are in the record."""
    frozen = search.baselines if selection.baselines else None
    trials = [(loss, trial) for loss in selection.chosen for trial in search.trials(loss, Stage.TEST)]
    ended = (TrialState.PRUNED, TrialState.FAIL)
    due = {
        "scores": [sealed.scored_as(loss, trial) for loss, trial in trials if trial.state not in ended],
        "baselines": [baseline_entry(name, frozen.network, frozen.whitening_sha256) for name in BASELINES if frozen],
    }
    failed = {entry.per_image for entry in record.failed}
    wanted = {part: [entry for entry in entries if entry["per_image"] not in failed] for part, entries in due.items()}
    content = record.content()
    stored = {
        part: [{key: entry.get(key) for key in next(iter(entries), entry)} for entry in content.get(part, ())]
        for part, entries in wanted.items()
    }
    configurations = {(entry["loss"], entry["source_trial"]) for entry in due["scores"]}
    count = differing(f"{what} configurations", content["configurations"].get(search.name), len(configurations))
    problems = chain(count, differing(f"{what} ", stored, wanted))
    return check(f"{what}: the trainings and the networks without training that were scored", problems)


def _metric_problems(
    what: str, plan: Plan, selection: Selection, record: ScoredOpening, view: "StoreView"
) -> Iterator[str]:
    """Check the images, queries and superclasses of the stored results, and recompute every metric from them."""
    import torch

    from search.records import images_of, kept_metrics
    from trainables.data.store.view import protocol_for, superclasses_for
    from trainables.metrics.evaluation import SUPERCLASS

    dataset, names, folder = (plan.config.dataset.source, selection.test_metrics, plan.folder.path / "test" / record.id)
    protocol, superclasses_N = protocol_for(dataset, view.image_keys), superclasses_for(names, dataset, view)
    queries_N = torch.ones(len(view), dtype=torch.bool) if protocol is None else protocol.queries_N
    for model in (*record.scores, *record.baselines):
        name, metrics = model.per_image, model.metrics
        with reading(folder / name):
            arrays = read_arrays(folder / name)
            stored = {"keys": arrays.pop("keys").tolist(), "metrics": [*metrics], "labels": arrays["labels"].tolist()}
        anew = {"keys": view.image_keys, "metrics": [*map(metric_name, names)], "labels": view.labels_N.tolist()}
        kept = {part: torch.from_numpy(array) for part, array in arrays.items()}
        for part, values in kept.items():
            kind, subset = split_subset(part)
            if is_retrieval(part):
                stored[f"{part} queries"], anew[f"{part} queries"] = (~values.isnan()).tolist(), queries_N.tolist()
            if kind == SUPERCLASS and superclasses_N is not None:
                of_N = images_of(subset, view.labels_N, view.class_names, dataset.test_subsets())
                stored[part], anew[part] = values.tolist(), superclasses_N[of_N].tolist()
        yield from differing(f"{what} {name} ", stored, anew)
        found = kept_metrics(kept, view.class_names, dataset, names)
        close = partial(math.isclose, rel_tol=1e-9)  # means are computed in another order
        yield from differing(f"{what} {name} ", {key: metrics[key] for key in found}, defined(found), close)


AGAIN = {True: 2e-3, False: 2e-2}
"""The largest differences, by :func:`is_retrieval`, of a test metric between two machines that embed with one model."""


def scored_names(record: ScoredOpening) -> dict[str, Mapping[str, float | None]]:
    """Return the metrics of the models and networks that were scored in an opening, by the file of their results."""
    return {model.per_image: model.metrics for model in (*record.scores, *record.baselines)}


def again_problems(what: str, scorings: Sequence[Scoring | BaselineScoring], record: ScoredOpening) -> Iterator[str]:
    """Score models and networks without training on the test images again, and compare with the ``record``."""
    from search.records import score

    stored = scored_names(record)
    for scoring in scorings:
        tolerance = 0.0
        if isinstance(scoring, Scoring):  # user code is set up with the items that it trained on
            trained_on = replace(scoring.spec.images, cache=scoring.images.cache)
            scoring = replace(scoring, spec=replace(scoring.spec, images=trained_on))
            tolerance = trainable_class(scoring.spec.trainable).tolerance if scoring.spec.trainable else 0.0
        for again in (scored.record for scored in score(scoring)):
            place, kept = f"{what} {again.per_image} scored again, ", stored.get(again.per_image)
            if isinstance(again, FailedScoring):
                if kept is not None:
                    yield f"{place}its model gives no scores ({again.reason})."
                continue
            if kept is None:
                yield f"{place}its model has scores, and the record says that it could not be scored."
                continue
            for name, value in again.metrics.items():
                close = partial(math.isclose, rel_tol=0, abs_tol=max(tolerance, AGAIN[is_retrieval(name)]))
                yield from differing(f"{place}{name}", kept.get(name), value, close)


# The answer of a vault.


def check_vault(
    search: Records, selection: Selection, record: ScoredOpening, training: ImageSet | None = None
) -> Iterator[Check]:
    """Check the signed answer of an opening by a vault; given the ``training`` images, what was sent to it, too."""
    what = f"test.json opening {record.id[:12]}"
    yield check(f"{what}: scores, selection and number, as the vault signed them", check_answer(search, record))
    if training is not None:
        yield _scored_check(what, search, selection, record)
        scorings = kept_scorings(search, selection, record, sealed.test_items(search.plan))
        problems = check_sent(search, record, scorings, training)
        yield check(f"{what}: the models and training images that the vault saw", problems)


def check_answer(search: Records, record: ScoredOpening) -> Iterator[str]:
    """Yield how the ``record`` of an opening differs from the answer that its vault signed."""
    answer, what = _answer(search, record), f"test.json opening {record.id[:12]} "
    frozen = {"selection": search.frozen_selection.digest, "test": search.split.test_digest}
    said = {name: answer[name] for name in frozen}
    said |= {name: part for name, part in sealed.parts_of(answer).items() if part != []}
    kept = {**record.content(), **frozen}
    yield from differing(what, {name: kept.get(name) for name in said}, said)
    files = {name: digest for name, digest in record.files.items() if name != sealed.ANSWER}
    yield from differing(f"{what}files ", files, sealed.files_of(answer))


def check_sent(search: Records, record: ScoredOpening, scorings: sealed.Scorings, training: ImageSet) -> Iterator[str]:
    """Yield which models or training images that are kept here are not those of the signed answer."""
    from search.vault.models import models_of  # imports torch

    answer, kept = _answer(search, record), {"training": digest_of(training.to_bytes())}
    if not record.vault["labels_only"]:
        kept["models"] = json_digest([model.to_json() for scoring in scorings for model in models_of(scoring)])
    yield from differing(f"test.json opening {record.id[:12]} ", {name: answer[name] for name in kept}, kept)


def _answer(search: Records, record: ScoredOpening) -> dict[str, Any]:
    """Return the content of the answer beside a ``record``; raise if another key than the frozen one signed it."""
    path = search.folder.path / "test" / record.id / sealed.ANSWER
    return content_of(read_json(path), dict(search.split.vault)["key"])


# A trial that is trained again, and compared with its stored epochs.

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

        spec = training_of(plan_from_rules(search.folder), *search.study_of(study), trial)
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
    plan = plan_from_rules(search.folder)
    spec = training_of(plan, *search.study_of(study), trial)
    tolerance = 0.0 if spec.trainable is None else trainable_class(spec.trainable).tolerance
    same = f"the same within {tolerance:g}" if tolerance else "bit for bit the same"
    what = f"{search.name}/{study} trial {trial.number}"
    problems = _retrained_problems(what, search, plan, study, trial, spec, tolerance)
    yield check(f"{what}: {len(epochs_of(trial))} epochs retrained, {same}", problems)


def _retrained_problems(
    what: str, search: Records, plan: Plan, study: str, trial: FrozenTrial, spec: TrialSpec, tolerance: float
) -> Iterator[str]:
    """Train a trial again, and score a final training on the test images again; compare with what is stored."""
    import torch

    from trainables.training.cross_validation import begin

    torch.set_num_threads(max(1, int(plan.config.resources.cpus_per_trial)))
    records, (loss, stage) = epochs_of(trial), search.study_of(study)
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as folder:
        training = begin(replace(spec, directory=folder), torch.device("cuda" if _on_gpu(records) else "cpu"))
        try:
            for stored in records:
                record = training.run_epoch()
                if EMBED_MS in record["metrics"]:  # a time, which no training repeats
                    record["metrics"][EMBED_MS] = stored["metrics"].get(EMBED_MS, math.nan)
                fold = f" fold {record['fold']}" if "fold" in record else ""
                before, after = ({key: of.get(key) for key in COMPARED} for of in (stored, record))
                close = partial(math.isclose, rel_tol=0, abs_tol=tolerance)
                yield from differing(f"{what}{fold} epoch {record['epoch']} retrained, ", before, after, close)
            training.wait_for_checkpoints()
            kept = [record["checkpoint"] for record in training.records if record["checkpoint"]]
            models = [(loss, trial, training.spec, f"{folder}/{kept[-1]}")]
            for scored in search.openings if stage is Stage.TEST else ():
                if sealed.scored_as(loss, trial)["per_image"] in scored_names(scored):
                    selection, of_split = search.frozen_selection, replace(plan, split=search.split)
                    with decoded_test(Records(search.folder, of_split), selection, scored) as (images, _, _):
                        scorings = sealed.test_scorings(of_split, selection, models, images, gpu=_on_gpu(records))
                        yield from again_problems(what, scorings[:1], scored)
        finally:  # also if the caller stops at the first problem: nothing may write to the folder when it is removed
            training.wait_for_checkpoints()
            training.end()


def _on_gpu(records: Sequence[EpochRecord]) -> bool:
    return any("memory" in record for record in records)
