"""A user-defined training, run like every other: epochs with validation, checkpoints, resume and test.

Legend: N items, D embedding.
"""

import linecache
import logging
import math
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np
import torch
from torch import Tensor

from trainables.data.store.spec import StoreSpec
from trainables.data.store.view import StoreView
from trainables.errors import InvalidInput
from trainables.given import number
from trainables.inference.model_files import FILE, PROBE, TrainableSpec, read_tensors, tensors_bytes, write_files
from trainables.secrets import without_password
from trainables.spec import EpochRecord, TrialSpec, defined
from trainables.storage import AnyPath
from trainables.training.epoch_training import Diverged, EpochTraining, Validation, origin_of
from trainables.training.inputs import learned_labels, opened_images
from trainables.training.kept import KeptModel
from trainables.training.trainable import Items, Trainable, checked_embeddings, seed_epoch, trainable_class
from trainables.unit import without_direction

logger = logging.getLogger(__name__)

STEP, LOSS = "batches", "loss"
"""Numbers returned by ``train_epoch`` that mean what they do in every training."""

LINES = 3
"""Lines of the user's code that a failure names."""


class OwnTraining(EpochTraining):
    """A :class:`Trainable` as a training. Items of other classes reach it through ``embed`` alone."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        super().__init__(spec, device)
        store = opened_images(spec.images)
        self.train_view = store.subset(spec.train_classes)
        if spec.validation_classes:
            self._validation = Validation.of(spec, store.subset(spec.validation_classes), self.train_view)
        self._own = _set_up(spec, self.train_view, device)
        try:
            if (state := self._new_attempt(origin_of(spec))) is not None:
                _load(self._own, state["files"])
        except Exception:
            self.end()
            raise

    def run_epoch(self) -> EpochRecord:
        """Train and validate the next epoch, see :meth:`EpochTraining.run_epoch`."""
        start, began, epoch = time.time(), time.monotonic(), len(self.records) + 1
        seed_epoch(self.spec.seed, epoch)
        with _named(self._own, "train_epoch"):
            numbers = _numbers("train_epoch", self._own.train_epoch() or {})
        loss = numbers.pop(LOSS, None)
        if loss is not None and not math.isfinite(loss):
            raise Diverged(f"The training loss became {loss} in epoch {epoch}.")
        batches = numbers.pop(STEP, 1)
        record = EpochRecord(
            epoch=epoch, batches=int(batches) if math.isfinite(batches) else 1,
            **self._validate(), start=start, end=start + time.monotonic() - began, checkpoint=None,
        )  # fmt: skip
        if loss is not None:
            record["loss"] = loss
        if numbers:
            record["reported"] = defined(numbers)
        return self._recorded(record)

    def _embed(self, view: StoreView) -> Tensor:
        return _embedded(self._own, view)

    def _tensors(self) -> dict[str, Tensor]:
        return _saved(self._own)

    def _save(self, record: EpochRecord) -> None:
        """Append ``record`` and save what the training saves, also as the model if it is the best so far."""
        files = self._tensors()
        best, description = None, None
        if self._is_best(record):
            assert self.spec.trainable is not None
            origin = {**self._origin, "epoch": record["epoch"]}
            params = dict(self.spec.hyperparameters)
            best = self._with_probe(files, self._embed)
            description = TrainableSpec(trainable=self.spec.trainable, params=params, origin=origin).to_json()
        self._checkpoints.save({"files": files, **self._progress}, best, description)

    def end(self) -> None:
        """Let the user's code release what it holds; an error is logged, since the training has ended."""
        try:
            self._own.finish()
        except (Exception, SystemExit):
            logger.warning("%s.finish failed.", type(self._own).__name__, exc_info=True)

    @classmethod
    @contextmanager
    def kept(
        cls, spec: TrialSpec, checkpoint: AnyPath, images: StoreSpec, classes: Sequence[str], device: torch.device
    ) -> Iterator[KeptModel]:
        """Load a kept model, see :meth:`EpochTraining.kept`: the training is set up with its own items and loaded."""
        files, _ = read_tensors(checkpoint)
        probe_PD = files.pop(PROBE)
        own = _set_up(spec, opened_images(spec.images).subset(spec.train_classes), device)
        try:
            _load(own, files)
            view = opened_images(images).subset(classes)
            yield KeptModel(view, partial(_embedded, own), probe_PD, own.tolerance)
        finally:
            own.finish()


def _set_up(spec: TrialSpec, view: StoreView, device: torch.device) -> Trainable:
    assert spec.trainable is not None
    own = trainable_class(spec.trainable)()
    own.epochs = spec.training.epochs
    labels_N = learned_labels(view, spec).numpy().astype(np.int64)
    train = Items(items=view.items, labels=labels_N, class_names=view.class_names)
    seed_epoch(spec.seed, 0)
    with _named(own, "setup"):
        own.setup(dict(spec.hyperparameters), train, seed=spec.seed, device=device)
    return own


def _embedded(own: Trainable, view: StoreView) -> Tensor:
    """Embed the items of ``view``, [N, D]."""
    with _named(own, "embed"), torch.no_grad():
        found = own.embed(view.items)
    embeddings_ND = checked_embeddings(found, len(view))
    if bad := without_direction(embeddings_ND):
        raise Diverged(f"{bad}.")
    return embeddings_ND


def _saved(own: Trainable) -> dict[str, Tensor]:
    """Return the files that ``save`` writes, each as a tensor of its bytes."""
    with tempfile.TemporaryDirectory(prefix="holdout-save-") as place:
        folder = Path(place)
        with _named(own, "save"):
            own.save(folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        if not paths:
            raise InvalidInput("save must write what load needs into its folder; it wrote no file.")
        return {
            f"{FILE}{path.relative_to(folder).as_posix()}": torch.from_numpy(np.fromfile(path, dtype=np.uint8))
            for path in paths
        }


def _load(own: Trainable, files: Mapping[str, Tensor]) -> None:
    with tempfile.TemporaryDirectory(prefix="holdout-load-") as place:
        write_files(tensors_bytes(files), Path(place))
        with _named(own, "load"):
            own.load(Path(place))


def _numbers(method: str, found: object) -> dict[str, float]:
    """Return the numbers by name that a method returned."""
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{method} must return a mapping from names to numbers; it returned {type(found).__name__}.")
    numbers = {}
    for name, value in found.items():
        try:
            numbers[str(name)] = math.nan if value is None else number(value, str(name))
        except Exception:  # of any library
            shown = without_password(repr(value))
            raise InvalidInput(f"{method} must return numbers; {name} is {shown:.60}.") from None
    return numbers


@contextmanager
def _named(own: Trainable, method: str) -> Iterator[None]:
    """Note the method, and the lines of the user's code, on an exception."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = _lines_of(type(own), error.__traceback__)
        error.add_note(f"in {type(own).__name__}.{method}{': ' if lines else ''}{'; '.join(lines)}")
        raise


def _lines_of(own: type, where: TracebackType | None) -> list[str]:
    """Return the last lines of a traceback that are in the package of ``own``."""
    package = own.__module__.partition(".")[0]
    found = [
        f"{Path(frame.f_code.co_filename).name}, line {line}: {text.strip()}"
        for frame, line in traceback.walk_tb(where)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
        and (text := linecache.getline(frame.f_code.co_filename, line))
    ]
    return found[-LINES:]
