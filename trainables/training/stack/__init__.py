"""Stacks: small trainings computed together by ``torch.func.vmap``, to use a GPU that one network leaves idle.

This package says which trainings may share a stack, without importing torch; ``together`` trains one, ``networks``
computes its networks and losses.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.losses import LOSSES
from trainables.models.backbones import BACKBONES
from trainables.models.config import ModelConfig
from trainables.parts import late_import
from trainables.spec import TrialSpec
from trainables.training.config import Schedule, TrainingConfig

if TYPE_CHECKING:
    from trainables.training.stack.together import run_epochs

__getattr__ = late_import(__name__, {"run_epochs": ".together"})

__all__ = ["run_epochs", "stack_key", "why_not_stacked"]


def why_not_stacked(*, loss: str, model: ModelConfig, training: TrainingConfig, folds: int = 0) -> str | None:
    """Return why trainings with these parts cannot be stacked, or None if they can.

    Built-in parts are tested in stacks (``tests/trainables/training/test_stack_contract.py``). A user-defined part may
    draw random numbers, keep state or synchronise with the device, and a stack would silently give other results.
    """
    for kind, name, table in (
        ("loss", loss, LOSSES),
        *([] if model.is_frozen else [("backbone", model.backbone, BACKBONES)]),
        ("batch sampler", training.sampler, BATCH_SAMPLERS),
    ):
        if name not in table:
            return f"the {kind} {name!r} is not among those tested in stacks ({', '.join(table)})"
    if model.head_dropout:
        return f"model.head_dropout is {model.head_dropout:g}, which draws random numbers in the network"
    if training.compile:
        return f"training.compile is {training.compile}, which is for the steps of a single training"
    if folds:
        return f"a training of {folds} folds is several trainings, one after the other"
    return None


def stack_key(spec: TrialSpec) -> Hashable | None:
    """Return a key that is equal for trainings that may share a stack; None if ``spec`` cannot be stacked.

    Members may differ in seeds, epochs and real numbers (learning rates, weight decay, gradient bound,
    schedule, and the loss's margins and scales). They may not differ in what determines shapes or code paths: integers
    and strings among the loss's hyperparameters, the network, the batches, the classes.
    """
    config = spec.training
    if why_not_stacked(loss=spec.loss, model=spec.model, training=config, folds=len(spec.folds)):
        return None
    default = TrainingConfig()
    shared = replace(
        config, epochs=default.epochs, lr=default.lr, head_lr=None, proxy_lr=None, weight_decay=default.weight_decay,
        schedule=Schedule(), warmup_epochs=0, clip_grad=None, ema=0.5 if config.ema else 0.0,
    )  # fmt: skip
    return (
        spec.loss,
        _shared(spec.hyperparameters),
        spec.model,
        shared,
        spec.images,
        spec.train_classes,
        spec.validation_classes,
        spec.merge,
        spec.label_noise,
        spec.noise_seed,
        spec.gallery_seed,
    )


def _shared(hyperparameters: Mapping[str, Any]) -> Hashable:
    """Return the hyperparameters with the values of real numbers removed."""
    return tuple(
        (name, float if type(value) is float else (type(value), value))
        for name, value in sorted(hyperparameters.items())
    )
