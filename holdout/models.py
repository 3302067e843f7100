"""Trained models from Python."""

import os
from typing import TYPE_CHECKING

from search.tracking.load_model import load_model

if TYPE_CHECKING:
    import torch

    from trainables.inference.embedder import Embedder


def load(
    address: str | os.PathLike[str], *, device: "str | torch.device | None" = None, trust_code: bool = False
) -> "Embedder":
    """A trained model, as something that turns images into embeddings. Neither Ray nor Optuna is needed.

    >>> model = holdout.load("runs/birds/models/mpa")
    >>> model.embed("photos/")  # float32 [N, D], of length 1
    >>> model.index("photos/").query("heron.jpg", k=5)

    Args:
        address: a model's folder or a checkpoint ``best.safetensors``, as a path or a URL (``s3://bucket/birds-mpa``);
            or, with MLflow installed, ``models:/NAME@ALIAS`` or ``models:/NAME/3`` on the server that
            ``MLFLOW_TRACKING_URI`` names.
        device: where to compute; by default a GPU where there is one.
        trust_code: whether the code of a network of one's own, which the model names, may be imported and run.

    Raises:
        Mistakes: there is no model, it is of another format or damaged, it names code that is not trusted, or this
            machine has no such device.
    """
    return load_model(os.fspath(address), device=device, trust_code=trust_code)
