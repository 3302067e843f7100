"""Which trainings may be in one stack, known without torch."""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

from trainables.data.batch_samplers import BATCH_SAMPLERS
from trainables.losses import LOSSES
from trainables.models.backbones import BACKBONES
from trainables.spec import TrialSpec
from trainables.training.config import Schedule, TrainingConfig

_OWN = TrainingConfig()
"""In place of what each member of a stack has for itself."""


def why_not_stacked(*, loss: str, backbone: str, sampler: str, folds: int = 0) -> str | None:
    """The sentence on why trainings with these parts cannot be in a stack; None: they can.

    What the tables name was tried (``tests/trainables/training/stack/``); what one brings along may draw at random,
    keep a state of its own or wait for the device, and a stack would not show it.
    """
    for kind, name, table in (
        ("loss", loss, LOSSES),
        ("backbone", backbone, BACKBONES),
        ("batch sampler", sampler, BATCH_SAMPLERS),
    ):
        if name not in table:
            return f"the {kind} {name!r} is none of {', '.join(table)}, and others were not tried in a stack"
    if folds:
        return f"a training of {folds} folds is several trainings, one after the other"
    return None


def stack_key(spec: TrialSpec) -> Hashable | None:
    """Trainings whose keys are equal may be in one stack; None: in none.

    The members' seeds, epochs and real numbers may differ (learning rates, decay, the bound of gradients, schedules and
    the loss's margins and scales). What decides shapes or the way of computing may not: whole numbers and words among
    the loss's hyperparameters, the network, the batches, the classes.
    """
    config = spec.training
    if why_not_stacked(loss=spec.loss, backbone=spec.model.backbone, sampler=config.sampler, folds=len(spec.folds)):
        return None
    shared = replace(
        config, epochs=_OWN.epochs, lr=_OWN.lr, head_lr=None, proxy_lr=None, weight_decay=_OWN.weight_decay,
        schedule=Schedule(), warmup_epochs=0, clip_grad=None,
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
        spec.gallery_seed,
    )


def _shared(hyperparameters: Mapping[str, Any]) -> Hashable:
    """What is left of hyperparameters without the values of real numbers."""
    return tuple(
        (name, float if type(value) is float else (type(value), value))
        for name, value in sorted(hyperparameters.items())
    )
