"""What a checkpoint says of itself."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from trainables.inference.embedder_spec import EmbedderSpec
from trainables.spec import TrialSpec


def origin_of(spec: TrialSpec) -> dict[str, Any]:
    """Whose training ``spec`` is, and what it is trained with, in JSON's types."""
    return {
        **spec.origin,
        "loss": spec.loss,
        "hyperparameters": dict(spec.hyperparameters),
        "training": asdict(spec.training),
        "initial_weights": spec.model.weights,
        "seed": spec.seed,
        "classes": {"train": len(spec.train_classes), "validation": len(spec.validation_classes)},
        "objective": spec.objective,
        "digest": spec.digest,
    }


def embedder_spec(spec: TrialSpec, origin: Mapping[str, Any], epoch: int) -> EmbedderSpec:
    """The network that the training ``spec``, of this ``origin``, has after ``epoch``."""
    return EmbedderSpec(
        model=replace(spec.model, weights=None),  # the training has changed them
        decoded_side=spec.images.short_side,
        frame=spec.training.frame,
        batch_size=spec.training.embedding_batch,
        origin={**origin, "epoch": epoch},
    )
