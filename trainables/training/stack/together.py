"""The epochs of a stack of trainings.

Shapes: M members, B images of a batch, S pixels a side, D embedding dimensions, N images of a view, T steps.
"""

import gc
import logging
import time
import traceback
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from trainables.data.loading import load, prefetched
from trainables.losses.base import Used, summed
from trainables.models.embedding import embed
from trainables.spec import EpochRecord, derived_seed
from trainables.training.averages import StackedAverages
from trainables.training.optimizers import StackedOptimizer
from trainables.training.stack.networks import (
    LossesInTurn,
    LossesTogether,
    SideBySide,
    embeddings,
    stacked,
    write_buffers_back,
)
from trainables.training.train import Trained, Training, raise_if_diverged

logger = logging.getLogger(__name__)


def run_epochs(trainings: Sequence[Training]) -> list[EpochRecord | Exception]:
    """Train the next epoch of each training; all have the same :func:`stack_key` and are not finished.

    Weights, records and checkpoints equal those of :meth:`Training.run_epoch` up to rounding. An error of one member is
    returned instead of its record and does not affect the others.

    Members whose backbone or memory waits form stacks of their own. A stack that fails as a
    whole, for example for lack of device memory, is split into halves.
    """
    results: dict[int, EpochRecord | Exception] = {}
    order = sorted(range(len(trainings)), key=lambda number: trainings[number].phase)
    for _, numbers in groupby(order, key=lambda number: trainings[number].phase):
        stack = list(numbers)
        results |= zip(stack, _run([trainings[number] for number in stack]))
    return [results[number] for number in range(len(trainings))]


def _run(trainings: Sequence[Training]) -> list[EpochRecord | Exception]:
    start = time.time()
    if len(trainings) == 1:
        return [_result(trainings[0], start, None)]
    try:
        with trainings[0].deterministic:
            outcomes = _train(trainings)
    except Exception as error:  # the members are unchanged: results are written back last
        logger.warning(
            "A stack of %d trainings failed (%s: %s); it is split into halves.",
            len(trainings), type(error).__name__, str(error),
        )  # fmt: skip
        _release(error)
        outcomes = None
    if outcomes is None:
        middle = len(trainings) // 2
        return [*_run(trainings[:middle]), *_run(trainings[middle:])]
    embedded = _embedded([t for t, outcome in zip(trainings, outcomes) if isinstance(outcome, Trained)])
    return [_result(training, start, outcome, embedded.get(training)) for training, outcome in zip(trainings, outcomes)]


def _result(
    training: Training, start: float, outcome: Trained | Exception | None, embedded: Sequence[Tensor] | None = None
) -> EpochRecord | Exception:
    """Finish a member's epoch; without an ``outcome``, train it separately."""
    try:
        if outcome is None:
            return training.run_epoch()
        return outcome if isinstance(outcome, Exception) else training.end_epoch(start, outcome, embedded)
    except Exception as error:
        _release(error)
        return error


def _release(error: BaseException) -> None:
    """Free the tensors that the traceback of ``error`` and cycles keep alive: the trainings that follow need memory."""
    cause: BaseException | None = error
    while cause is not None:
        traceback.clear_frames(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__
    gc.collect()


def _train(trainings: Sequence[Training]) -> list[Trained | Exception]:
    """Take all steps of an epoch, and write the results back to the members that have not diverged."""
    epochs = [training.begin_epoch() for training in trainings]
    batches = [training.draw_batches(epoch) for training, epoch in zip(trainings, epochs)]
    indices_TMB = torch.stack([torch.stack(of_step) for of_step in zip(*batches, strict=True)])
    together = Together(trainings, epochs, steps=len(indices_TMB))
    images = prefetched(indices_TMB, lambda indices_MB: (together.load(indices_MB),), trainings[0].device)
    steps = zip(images, together.labels(indices_TMB))
    values_MT = torch.stack([together.step(images, labels_MB) for (images,), labels_MB in steps], dim=1).cpu()
    outcomes: list[Trained | Exception] = []
    for member, used in enumerate(together.used()):
        try:
            for value in values_MT[member].tolist():
                raise_if_diverged(value, epochs[member])
        except ArithmeticError as error:
            outcomes.append(error)
            continue
        together.write_back(member)
        loss = values_MT[member].mean().item()
        outcomes.append(Trained(loss=loss, batches=len(indices_TMB), used=summed(used), together=len(trainings)))
    return outcomes


class Together:
    """The steps of a stack of trainings in the epochs ``epochs``, at most ``steps`` of them.

    The members' own tensors are unchanged until :meth:`write_back`.
    """

    def __init__(self, trainings: Sequence[Training], epochs: Sequence[int], *, steps: int) -> None:
        self._trainings = trainings
        specs = [training.spec for training in trainings]
        first, self._config = trainings[0], specs[0].training
        self._network, self._images, self._device = first.model, first.train_view, first.device
        seeds = [derived_seed(spec.seed, epoch, "torch") for spec, epoch in zip(specs, epochs)]
        self._generators = [
            torch.Generator().manual_seed(derived_seed(spec.seed, epoch, "augment"))
            for spec, epoch in zip(specs, epochs)
        ]
        clips = [spec.training.clip_grad for spec in specs]
        self._optimizer = StackedOptimizer([training.optimizer for training in trainings], clips)
        learning = dict(self._optimizer.learning())
        self._of_network = stacked([training.model for training in trainings], learning)
        members = [training.loss for training in trainings]
        self._of_loss = stacked(members, learning)
        self._losses = (
            LossesTogether(members, self._device)
            if first.loss.static_shapes
            else LossesInTurn(members, seeds, self._device)
        )
        averages = [training.averages for training in trainings if training.averages is not None]
        self._averages = StackedAverages(averages, self._of_network, self._of_loss) if averages else None
        rates_TMG = [
            [training.learning_rates(epoch, step, steps) for training, epoch in zip(trainings, epochs)]
            for step in range(steps)
        ]
        self._optimizer.begin(torch.tensor(rates_TMG, dtype=torch.float64))

    def labels(self, indices_TMB: Tensor) -> Tensor:
        """Return the labels [T, M, B] of each member's images, sent to the device once for all steps."""
        labels = [training.labels_N[indices_TMB[:, member]] for member, training in enumerate(self._trainings)]
        return torch.stack(labels, dim=1).to(self._device)

    def step(self, images_MB3SS: Tensor, labels_MB: Tensor) -> Tensor:
        """Train each member on its images, and return the losses [M] on the device."""
        embeddings_MBD = embeddings(self._network, self._of_network, images_MB3SS, self._config.precision)
        losses_M = self._losses(self._of_loss, embeddings_MBD, labels_MB)
        self._optimizer.step(losses_M)
        if self._averages is not None:
            self._averages.update()
        return losses_M.detach()

    def load(self, indices_MB: Tensor) -> Tensor:
        """Load a batch of each member, float32 [M, B, …], with its own generator for the augmentation."""
        images = load(
            self._images, indices_MB.flatten(), self._config.augment, self._config.frame,
            device=self._device, generator=self._generators,
        )  # fmt: skip
        return images.unflatten(0, indices_MB.shape)

    def used(self) -> list[list[Used | None]]:
        """Return, for each member, what its loss has used of each batch so far."""
        return self._losses.used()

    def write_back(self, member: int) -> None:
        """Copy a member's parameters, buffers, optimizer state and averages from the stack back to it."""
        self._optimizer.write_back(member)
        write_buffers_back(self._of_network, member, self._trainings[member].model)
        write_buffers_back(self._of_loss, member, self._trainings[member].loss)
        if self._averages is not None:
            self._averages.write_back(member)


# The embeddings of the validation images.


def _embedded(trainings: Sequence[Training]) -> dict[Training, list[Tensor]]:
    """Embed the validation images of all members at once, on a GPU that one network would leave idle.

    On a CPU nothing is gained, and each network embeds alone, bit for bit as in later use of its model.
    """
    if len(trainings) < 2 or trainings[0].device.type == "cpu":
        return {}
    return dict(zip(trainings, embedded_together(trainings)))


def embedded_together(trainings: Sequence[Training]) -> list[list[Tensor]]:
    """Return, for each training, the embeddings of its ``validated_views``, float32 on the CPU; see :func:`embed`."""
    config, device = trainings[0].spec.training, trainings[0].device
    averages = [training.averages.network.tensors for training in trainings if training.averages is not None]
    networks = SideBySide([training.model for training in trainings], averages)
    batch, precision = config.embedding_batch, config.precision
    views = [
        embed(networks, view, config.frame, batch_size=batch, device=device, precision=precision)
        for view in trainings[0].validated_views
    ]
    return [[view_NMD[:, member].contiguous() for view_NMD in views] for member in range(len(trainings))]
