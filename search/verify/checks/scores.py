"""The scores of every opening: the images, the models, and each metric from the results image by image."""

import hashlib
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from optuna.trial import TrialState

from search.plan.trainings import best_checkpoint, training_of
from search.selection.openings.ledger import Ledger
from search.selection.openings.opened_images import images_in
from search.selection.openings.opening import Opening
from search.selection.selection import Selection
from search.stages.sealed_test import scores_digest, trained_digests
from search.study.names import Stage, short_study_name
from search.verify.check import Check, check, differing
from search.verify.checks.openings import scored
from search.verify.checks.retrieval import retrieval_problems
from search.verify.checks.setting import decoded_anew
from search.verify.records import Records
from trainables.data.store.spec import StoreSpec
from trainables.files.whole import as_path
from trainables.metrics import metric_name
from trainables.metrics.table import superclass_metrics

CLOSE = 1e-9
"""Means are summed in another order than they were."""


def check_scores(records: Records, selection: Selection) -> Iterator[Check]:
    """What ``test.json`` says, opening by opening."""
    plan = records.plan
    openings = {opening.id: opening for opening in Ledger(plan.folder.openings).of_selection(selection.digest)}
    for record in scored(plan.folder):
        opening = openings[record["id"]]
        images = plan.sealed_test.images(selection, opening)
        what = f"test.json opening {record['id'][:12]}"
        yield check(f"{what}: the images of the {len(images.class_names)} test classes", _images(opening, images))
        yield check(f"{what}: the trainings that were scored", _trainings(what, records, selection, record))
        yield check(f"{what}: its models", _models(what, records, selection, record))
        folder = plan.folder.path / "test" / record["id"]
        yield check(
            f"{what}: its metrics, from the results image by image",
            _metrics(what, records, selection.test_metrics, record, folder),
        )
        yield check(
            f"{what}: the neighbours of its models, and what else is kept for pictures",
            retrieval_problems(what, record, folder, images.class_names, selection.test_metrics),
        )
        yield check(f"{what}: all that it says", _digest(what, record))


def _images(opening: Opening, images: StoreSpec) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="holdout-verify-") as cache:
        found = images_in(decoded_anew(images, cache))
    stored = None if opening.images is None else asdict(opening.images)
    yield from differing(f"the ledger's opening {opening.id} images", stored, asdict(found))


def _digest(what: str, record: Mapping[str, Any]) -> Iterator[str]:
    """What nothing else tells, such as a metric that is of no single image."""
    yield from differing(f"{what} digest", record["digest"], scores_digest(record))


def _finals(records: Records, selection: Selection) -> Iterator[tuple[dict[str, Any], str]]:
    """What each complete training for the test is called in ``test.json``, and where its model is."""
    for loss in selection.chosen:
        for trial in records.search.trials(loss, Stage.TEST):
            if trial.state == TrialState.COMPLETE:
                name = {
                    "loss": loss,
                    "configuration": trial.user_attrs["configuration"],
                    "seed": trial.user_attrs["seed"],
                    "fold": trial.user_attrs.get("fold"),
                    "per_image": f"{short_study_name(loss, Stage.TEST)}-{trial.number}.npz",
                }
                yield name, best_checkpoint(trial, training_of(records.plan, loss, Stage.TEST, trial).directory)


def _trainings(what: str, records: Records, selection: Selection, record: Mapping[str, Any]) -> Iterator[str]:
    """All complete trainings were scored, and nothing of them has changed since."""
    for loss in selection.chosen:
        for trial in records.search.trials(loss, Stage.TEST):
            if not trial.state.is_finished():
                yield f"{records.name_of(loss, Stage.TEST)} trial {trial.number}: it is {trial.state.name}, and scored."
    names = [name for name, _ in _finals(records, selection)]
    stored = [{key: model.get(key) for key in names[0]} for model in record["scores"]]
    yield from differing(f"{what} scores", stored, names)
    yield from differing(f"{what} studies", record["studies"], trained_digests(records.search, selection))


def _models(what: str, records: Records, selection: Selection, record: Mapping[str, Any]) -> Iterator[str]:
    for (name, checkpoint), model in zip(_finals(records, selection), record["scores"], strict=True):
        path = as_path(checkpoint)
        if not path.is_file():
            yield f"{what}: the model {path} that was scored is gone."
        else:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            yield from differing(f"{what} {name['per_image']} model_sha256", model["model_sha256"], found)


def _metrics(
    what: str, records: Records, names: Sequence[str], record: Mapping[str, Any], folder: Path
) -> Iterator[str]:
    import torch

    from search.selection.scores.subset_parts import by_subset, gathered_parts, images_of, subset_name
    from trainables.metrics.parts import SUPERCLASS, from_parts

    keys, labels = _test_images(records)
    superclasses = _test_superclasses(records, labels) if superclass_metrics(names) else None
    class_names, test_subsets = records.plan.split.test, records.plan.config.dataset.source.test_subsets()
    for model in record["scores"]:
        file, of_model = folder / model["per_image"], f"{what} {model['per_image']}"
        if not file.is_file():
            yield f"{of_model}: the file is gone."
            continue
        yield from differing(f"{of_model} metrics", list(model["metrics"]), [metric_name(name) for name in names])
        with np.load(file) as content:
            yield from differing(f"{of_model} keys", content["keys"].tolist(), keys)
            yield from differing(f"{of_model} labels", content["labels"].tolist(), labels)
            kept = {part: torch.from_numpy(content[part]) for part in content.files if part != "keys"}
        for subset, of_subset in by_subset(names).items():
            of_N = images_of(subset, kept["labels"], class_names, test_subsets)
            parts, labels_N = gathered_parts(kept, subset, of_N), kept["labels"][of_N]
            if superclasses is not None and SUPERCLASS in parts:
                expected = [
                    superclass for superclass, within in zip(superclasses, of_N.tolist(), strict=True) if within
                ]
                yield from differing(
                    f"{of_model} {subset_name(SUPERCLASS, subset)}", parts[SUPERCLASS].tolist(), expected
                )
            for name, value in from_parts(parts, labels_N, of_subset).items():
                stored = model["metrics"][subset_name(name, subset)]
                if not math.isclose(stored, value, rel_tol=CLOSE):
                    yield from differing(f"{of_model} {subset_name(name, subset)}", stored, value)
        yield from differing(f"{of_model} sha256", model["sha256"], hashlib.sha256(file.read_bytes()).hexdigest())


def _test_images(records: Records) -> tuple[list[str], list[int]]:
    """The test images in the order of the data set, with their classes."""
    plan = records.plan
    label_of = {name: label for label, name in enumerate(plan.split.test)}
    classes = plan.config.dataset.source.classes()
    images = [(key, label_of[name]) for name, keys in classes.items() if name in label_of for key in keys]
    return [key for key, _ in images], [label for _, label in images]


def _test_superclasses(records: Records, labels: Sequence[int]) -> list[int]:
    """The superclass of each test image, by its position among the sorted names of all that have a test class."""
    plan = records.plan
    superclass_of = plan.config.dataset.source.superclasses() or {}
    of_classes = [superclass_of[name] for name in plan.split.test]
    names = sorted(set(of_classes))
    return [names.index(of_classes[label]) for label in labels]
