"""Trained models, scores of embeddings, and the table of losses."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from search.tracking import load_model

if TYPE_CHECKING:
    import torch
    from numpy.typing import ArrayLike

    from search.config.parts import LossDescription
    from trainables.inference.embedder import Embedder
    from trainables.training.own import OwnModel


def load(
    address: str | os.PathLike[str], *, device: "str | torch.device | None" = None, trust_code: bool = False
) -> "Embedder | OwnModel":
    """Load a trained model, which embeds images or other items. Neither Ray nor Optuna is needed.

    >>> model = holdout.load("runs/birds/models/mpa")
    >>> model.embed("photos/")  # float32 [N, D], rows of length 1
    >>> model.index("photos/").query("heron.jpg", k=5)

    Args:
        address: a model's folder or a checkpoint ``best.safetensors``, as a path or a URL (``s3://bucket/birds-mpa``);
            or, with MLflow installed, ``models:/NAME@ALIAS``, ``models:/NAME/3`` or ``runs:/RUN/NAME`` on the server
            that ``MLFLOW_TRACKING_URI`` names.
        device: device to compute on; by default a GPU if there is one.
        trust_code: import and run the code of a user-defined network or training that the model names.

    Returns:
        A network of Holdout, or the model of a user-defined training.

    Raises:
        InvalidInput: there is no model, it has another format or is damaged, it names code that is not trusted or that
            cannot load it, or the device is not available.
    """
    return load_model(os.fspath(address), device=device, trust_code=trust_code)


def evaluate(
    embeddings: "ArrayLike | torch.Tensor",
    labels: "ArrayLike | torch.Tensor",
    metrics: Sequence[str] | Literal["all"] = ("recall_at_1", "map_at_r"),
    *,
    superclasses: "ArrayLike | torch.Tensor | None" = None,
    queries: "ArrayLike | torch.Tensor | None" = None,
    gallery: "ArrayLike | torch.Tensor | None" = None,
    cameras: "ArrayLike | torch.Tensor | None" = None,
) -> dict[str, float]:
    """Compute metrics of embeddings, by default with each image as a query against all others.

    Args:
        embeddings: [N, D], numbers of any length; they are normalised here. Like all arguments, whatever
            ``numpy.asarray`` takes, by position: the index of a pandas object is ignored.
        labels: [N], numbers or texts: the class of each image.
        metrics: names such as ``recall_at_1``, ``map_at_r``, ``nmi``; "all" means all except those of superclasses.
        superclasses: [N], numbers or texts: the superclass of each image, for ``nmi_super`` and ``f1_super``.
        queries: [N], true for the images that are queries; None for all.
        gallery: [N], true for the images that queries are ranked against; None for all.
        cameras: [N], numbers or texts: a query ignores the images of its class that its camera took.

    Returns:
        The value of each metric by name, in [0, 1] except for distances.

    Raises:
        InvalidInput: a name is unknown, there are no embeddings, some are zero or not finite, labels are missing (NaN)
            or of another number, superclasses are missing, queries, gallery or cameras are not one for each image, or
            there is no query or no gallery.
    """
    import torch

    from trainables.common.vectors import classes, mask, numbers
    from trainables.metrics.evaluation import evaluate as evaluate_tensors
    from trainables.metrics.retrieval import RetrievalProtocol

    labels_N = classes(labels, "labels")
    superclasses_N = None if superclasses is None else classes(superclasses, "superclasses")
    protocol = None
    if queries is not None or gallery is not None or cameras is not None:
        every_N = torch.ones(len(labels_N), dtype=torch.bool)
        protocol = RetrievalProtocol(
            queries_N=every_N if queries is None else mask(queries, "queries"),
            gallery_N=every_N if gallery is None else mask(gallery, "gallery"),
            cameras_N=None if cameras is None else classes(cameras, "cameras"),
        )
    return evaluate_tensors(
        numbers(embeddings, "embeddings"), labels_N, metrics, superclasses_N=superclasses_N, protocol=protocol
    )


def losses() -> "dict[str, LossDescription]":
    """Return all losses by name: paper, equation, and hyperparameters with defaults, ranges and their sources."""
    from search.config.parts import described_losses  # imports optuna, which models do not need

    return {description.name: description for description in described_losses()}
