"""The exported model of a user-defined training.

Legend: N items, D dimensions.
"""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainables.errors import InvalidInput
from trainables.inference.embedder import available_device
from trainables.inference.index import ImageIndex
from trainables.inference.model_files import (
    ModelFiles,
    TrainableSpec,
    model_spec,
    not_trusted,
    tensors_bytes,
    write_files,
)
from trainables.training.trainable import checked_embeddings, has_predictor, trainable_class
from trainables.unit import unit, without_direction


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
        return hashlib.sha256(self._content).hexdigest()

    def embed(self, items: Any) -> NDArray[np.float32]:
        """Compute embeddings of length 1, [N, D], of several items, in their order.

        Args:
            items: as the training's data set gives them: a list, or float32 [N, F].

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
        """Build an index of items for similarity search.

        Args:
            items: as for :meth:`embed`.
            names: what they are called in results; ``item 0`` and so on by default.

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
