"""Models, embeddings and losses from Python."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from search.config.parts import LossDescription, described_losses
from search.tracking import load_model

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike

    from trainables.inference.embedder import Embedder


# Trained models from Python.


def load(
    address: str | os.PathLike[str], *, device: "str | torch.device | None" = None, trust_code: bool = False
) -> "Embedder":
    """A trained model, as something that turns images into embeddings. Neither Ray nor Optuna is needed.

    >>> model = holdout.load("runs/birds/models/mpa")
    >>> model.embed("photos/")  # float32 [N, D], of length 1
    >>> model.index("photos/").query("heron.jpg", k=5)

    Args:
        address: a model's folder or a checkpoint ``best.safetensors``, as a path or a URL (``s3://bucket/birds-mpa``);
            or, with MLflow installed, ``models:/NAME@ALIAS``, ``models:/NAME/3`` or ``runs:/RUN/NAME`` on the server
            that ``MLFLOW_TRACKING_URI`` names.
        device: where to compute; by default a GPU where there is one.
        trust_code: whether the code of a network of one's own, which the model names, may be imported and run.

    Raises:
        Mistakes: there is no model, it is of another format or damaged, it names code that is not trusted, or this
            machine has no such device.
    """
    return load_model(os.fspath(address), device=device, trust_code=trust_code)


# Scoring embeddings that were made anywhere.


def evaluate(
    embeddings: "ArrayLike | torch.Tensor",
    labels: "ArrayLike | torch.Tensor",
    metrics: Sequence[str] | Literal["all"] = ("recall_at_1", "map_at_r"),
    *,
    superclasses: "ArrayLike | torch.Tensor | None" = None,
) -> dict[str, float]:
    """Metrics of embeddings, each image a query against all others.

    Args:
        embeddings: [N, D], of any floating type; they are normalised here.
        labels: [N], whole numbers: each image's class.
        metrics: names such as ``recall_at_1``, ``map_at_r``, ``nmi``; "all" is all but those of superclasses.
        superclasses: [N], whole numbers: the larger class of each image, for ``nmi_super`` and ``f1_super``.

    Returns:
        each metric's value by name, in [0, 1] (distances as they are).

    Raises:
        Mistakes: an unknown name, no embeddings, not finite, labels of another number, or a metric of superclasses
            without them.
    """
    import torch

    from trainables.metrics import evaluate as evaluate_tensors

    superclasses_N = None if superclasses is None else torch.as_tensor(superclasses)
    return evaluate_tensors(
        torch.as_tensor(embeddings), torch.as_tensor(labels), metrics, superclasses_N=superclasses_N
    )


# What there is to search.


def losses() -> dict[str, LossDescription]:
    """Every loss by name: its paper and equation, and its hyperparameters with defaults, ranges and their sources."""
    return {description.name: description for description in described_losses()}
