"""A user-defined training, run like every other, and its exported model. N items, D dimensions of an embedding."""

import linecache
import logging
import math
import shutil
import tempfile
import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.common.errors import InvalidInput, without_password
from trainables.common.files import digest_of
from trainables.common.storage import AnyPath
from trainables.common.vectors import number, unit, without_direction
from trainables.data.store.store_spec import StoreSpec
from trainables.data.store.view import StoreView
from trainables.inference.embedder import available_device
from trainables.inference.index import ImageIndex
from trainables.inference.model_files import (
    FILE,
    PROBE,
    ModelFiles,
    TrainableSpec,
    model_spec,
    not_trusted,
    read_tensors,
    tensors_bytes,
    write_files,
)
from trainables.training.epoch_training import Diverged, EpochTraining, KeptModel, origin_of, raise_if_diverged
from trainables.training.inputs import learned_labels, opened_images
from trainables.training.spec import EpochRecord, Trained, TrialSpec, defined
from trainables.training.trainable import (
    Items,
    Trainable,
    checked_embeddings,
    has_predictor,
    seed_epoch,
    trainable_class,
)

logger = logging.getLogger(__name__)


class OwnTraining(EpochTraining):
    """A :class:`Trainable` as a training. Items of other classes reach it through ``embed`` alone."""

    def __init__(self, spec: TrialSpec, device: torch.device) -> None:
        super().__init__(spec, device, opened_images(spec.images).subset)
        self._own = _set_up(spec, self.train_view, device)
        try:
            if (state := self._new_attempt(origin_of(spec))) is not None:
                _load(self._own, state["files"])
        except Exception:
            self.end()
            raise

    def _train(self, epoch: int) -> Trained:
        """Train ``epoch``; the numbers ``loss`` and ``batches`` mean what they do in every training."""
        seed_epoch(self.spec.seed, epoch)
        with _named(self._own, "train_epoch"):
            numbers = _numbers("train_epoch", self._own.train_epoch() or {})
        batches, loss = numbers.pop("batches", 1), numbers.pop("loss", None)
        trained = Trained(batches=int(batches) if math.isfinite(batches) else 1)
        if loss is not None:
            raise_if_diverged(loss, epoch)
            trained["loss"] = loss
        if numbers:
            trained["reported"] = defined(numbers)
        return trained

    def embed(self, view: StoreView) -> Tensor:
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
            best = {**files, PROBE: self.embed(self._probed)}
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
    """Return the last three lines of a traceback that are in the package of ``own``."""
    package = own.__module__.partition(".")[0]
    found = [
        f"{Path(frame.f_code.co_filename).name}, line {line}: {text.strip()}"
        for frame, line in traceback.walk_tb(where)
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package
        and (text := linecache.getline(frame.f_code.co_filename, line))
    ]
    return found[-3:]


# The exported model.


class OwnModel:
    """A model that a user-defined training saved. Created by :func:`holdout.load`.

    ``spec`` describes its class, params and training, ``card`` does so in Markdown for people. ``address`` is the path
    or URL it was loaded from.
    """

    def __init__(self, spec: TrainableSpec, files: ModelFiles, device: torch.device) -> None:
        """Let the class of the training load ``files``."""
        self.spec = spec
        self.card = files.card
        self.device = device
        self.address: str | None = files.known_as
        self._content = tensors_bytes(files.tensors)
        own = trainable_class(spec.trainable)
        if not has_predictor(own):
            raise InvalidInput(
                f"{spec.trainable} has no predictor, which loads a model without training items; define it, see "
                "holdout.Trainable. What its save wrote is in the folder saved of the exported model."
            )
        folder = Path(tempfile.mkdtemp(prefix="holdout-model-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        write_files(self._content, folder)
        self._predict = own.predictor(folder, dict(spec.params), device=device)

    def __repr__(self) -> str:
        return f"<holdout.OwnModel of {self.spec.trainable}, on {self.device}>"

    @cached_property
    def weights_sha256(self) -> str:
        """Return the SHA-256 of the saved files as a file ``model.safetensors``, regardless of their source."""
        return digest_of(self._content)

    def embed(self, items: Any) -> NDArray[np.float32]:
        """Compute embeddings of length 1, [N, D], of items as the training's data set gives them, in their order.

        Raises:
            InvalidInput: there is none, or their embeddings are no numbers [N, D] with a direction.
        """
        if not len(items):
            raise InvalidInput("There is no item to embed: give at least one.")
        with torch.no_grad():
            found = self._predict(items)
        embeddings_ND = checked_embeddings(found, len(items), method="predictor")
        if bad := without_direction(embeddings_ND):
            raise InvalidInput(f"With {self.spec.trainable}, {bad}; correct or remove these items.")
        return unit(embeddings_ND).cpu().numpy()

    def index(self, items: Any, names: Sequence[str] | None = None) -> ImageIndex:
        """Build an index of items for similarity search; ``names``, by default ``item 0`` and so on, are for results.

        Raises:
            InvalidInput: the items cannot be embedded, or there are more or fewer names.
        """
        embeddings_ND = self.embed(items)
        called = [f"item {row}" for row in range(len(embeddings_ND))] if names is None else names
        return ImageIndex.of(embeddings_ND, called, self)


def own_model_of(files: ModelFiles, *, device: str | torch.device | None = None, trust_code: bool = False) -> OwnModel:
    """Load a model of a user-defined training, as :func:`trainables.inference.embedder.load_model` does a network."""
    where = available_device(device)
    spec = model_spec(files.description, files.address)
    assert isinstance(spec, TrainableSpec), "the caller asked"
    if not trust_code:
        raise not_trusted(files.address, "training", spec.trainable)
    return OwnModel(spec, files, where)
