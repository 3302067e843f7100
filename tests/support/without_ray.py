"""An engine for whole commands in this process whose trainings are made up, and commands that write only records."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from support.driving import record

from search.engines.base import Engine
from search.records.retrieval_file import FOLDER
from search.records.score_files import Scored, ScoredModel, Scoring
from search.records.scoring import kept_problem, retrieval_of
from search.study.trial_queue import RunningTrial, TrialQueue
from trainables.data.store.contents import read_contents
from trainables.training.spec import Epochs

CHECKPOINT = "attempt-1/best.safetensors"


class MadeUp(Engine):
    """One slot whose trainings and scores are made up.

    Attributes:
        scored: the tasks of every scoring.
    """

    title = "nothing"
    scored: ClassVar[list[Scoring]] = []

    @contextmanager
    def session(self) -> Iterator[None]:
        yield

    def slots(self) -> int:
        return 1

    def run(self, queue: TrialQueue, concurrent: int) -> None:
        while job := queue.next_trial():
            self.before_trial(job)
            path = Path(job.spec.directory) / CHECKPOINT
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            last = job.spec.training.epochs
            configuration = job.study.trial(job.number).user_attrs.get("source_trial", job.number)
            value = 0.05 * (configuration > 0) + job.spec.seed % 97 / 10000  # worse for the default
            for epoch in range(1, last + 1):
                made = {**record(epoch, 0.1 * epoch + value), "checkpoint": CHECKPOINT}
                if not queue.on_trial_result(job, Epochs([made], finished=epoch == last)):
                    break

    def before_trial(self, job: RunningTrial) -> None:
        """Do nothing; a subclass may fail here."""

    def map(self, function: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
        if function is kept_problem:  # there are no models
            return [None] * len(arguments)
        self.scored.extend(arguments)
        return [[_scores(task)] for task in arguments]


MADE_UP = {"engine": f"{MadeUp.__module__}:MadeUp"}
"""The ``resources`` of a search file that selects :class:`MadeUp`."""


def without_mlflow(patch: pytest.MonkeyPatch) -> None:
    """Let commands in this process write nothing to MLflow."""
    for module in ("pipeline", "finish", "synchronise"):
        patch.setattr(f"search.driver.{module}.make_projection", lambda plan: NoProjection())


def only_records(patch: pytest.MonkeyPatch) -> list[Scoring]:
    """Let commands in this process write no MLflow runs and no report; return every scoring of :class:`MadeUp`."""
    without_mlflow(patch)
    patch.setattr("search.driver.finish.draw_report", lambda write, name, console: None)
    MadeUp.scored.clear()
    return MadeUp.scored


class NoProjection:
    def __getattr__(self, name: str) -> Any:
        return lambda *given: None


def _scores(task: Scoring) -> Scored:
    """Made-up embeddings of the test images, and made-up scores that are not theirs."""
    contents = read_contents(task.images.make())
    label_of = {name: label for label, name in enumerate(task.images.class_names)}
    labels = np.array([label_of[contents.class_names[label]] for label in contents.labels_N])
    generator = np.random.default_rng(task.seed)
    values = {name: generator.random(len(labels)) for name in task.metrics}
    content = io.BytesIO()
    np.savez_compressed(content, labels=labels, keys=np.array(contents.image_keys), **values)
    embeddings = torch.from_numpy(generator.normal(size=(len(labels), 4)))
    retrieval = retrieval_of(embeddings, torch.from_numpy(labels), contents.image_keys, task.images.class_names)
    files = {task.per_image: content.getvalue(), f"{FOLDER}/{task.per_image}": retrieval.to_bytes()}
    record = ScoredModel(
        loss=task.loss,
        source_trial=task.source_trial,
        seed=task.seed,
        fold=task.fold,
        metrics={name: float(found.mean()) for name, found in values.items()},
        per_image=task.per_image,
        model_sha256="",
    )
    return Scored(record=record, files=files)
