"""Several trainings as one, from the first step of an epoch to the last."""

import logging
import time
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from trainables.data.augment import AUGMENTATIONS, Frame
from trainables.data.loading import Images, cut
from trainables.losses.base import Used, summed
from trainables.models.embedding import embed
from trainables.spec import EpochRecord, derived_seed
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

# The batches of several trainings that learn from the same images, loaded as one.
#
# Shapes: M members, B images a batch, S the images' side.


def load_together(
    images: Images,
    indices_MB: Tensor,
    augmentation: str,
    frame: Frame,
    *,
    device: torch.device,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """A batch of each member, float32 [M, B, 3, S, S], as :func:`load` gives it with the member's generator."""
    indices = indices_MB.flatten()
    crops = AUGMENTATIONS[augmentation](images.sizes(indices), frame, generators)
    return cut(images, indices, crops, device).unflatten(0, indices_MB.shape)


# Several trainings as one, from the first step of an epoch to the last.
#
# Shapes: M members, B images a batch, T steps.


class Together:
    """Trainings of one :func:`stack_key` in the epochs ``epochs``, of at most ``steps`` steps.

    The members' own tensors stay as they are until :meth:`write_back`.
    """

    def __init__(self, trainings: Sequence[Training], epochs: Sequence[int], *, steps: int) -> None:
        self._parts = [training.parts for training in trainings]
        specs = [training.spec for training in trainings]
        first, self._config = self._parts[0], specs[0].training
        self._network, self._images, self._device = first.model, first.images, first.device
        seeds = [derived_seed(spec.seed, epoch, "torch") for spec, epoch in zip(specs, epochs)]
        self._generators = [
            torch.Generator().manual_seed(derived_seed(spec.seed, epoch, "augment"))
            for spec, epoch in zip(specs, epochs)
        ]
        clips = [spec.training.clip_grad for spec in specs]
        self._optimizer = StackedOptimizer([part.optimizer for part in self._parts], clips)
        learning = dict(self._optimizer.learning())
        self._of_network = stacked([part.model for part in self._parts], learning)
        members = [part.loss for part in self._parts]
        self._of_loss = stacked(members, learning)
        self._losses = (
            LossesTogether(members, self._device)
            if first.loss.static_shapes
            else LossesInTurn(members, seeds, self._device)
        )
        self._optimizer.begin(steps)

    def labels(self, indices_TMB: Tensor) -> Tensor:
        """The labels [T, M, B] of each member's images, on the device: sent once for all steps."""
        labels = [part.labels_N[indices_TMB[:, member]] for member, part in enumerate(self._parts)]
        return torch.stack(labels, dim=1).to(self._device)

    def step(self, indices_MB: Tensor, labels_MB: Tensor) -> Tensor:
        """Each member learns from its images; the losses [M] on the device."""
        images = load_together(
            self._images, indices_MB, self._config.augment, self._config.frame,
            device=self._device, generators=self._generators,
        )  # fmt: skip
        embeddings_MBD = embeddings(self._network, self._of_network, images, self._config.precision)
        losses_M = self._losses(self._of_loss, embeddings_MBD, labels_MB)
        self._optimizer.step(losses_M)
        return losses_M.detach()

    def used(self) -> list[list[Used | None]]:
        """What each member's loss has used of each batch so far."""
        return self._losses.used()

    def write_back(self, member: int) -> None:
        """Give a member's parameters, buffers and optimiser what the steps have made of them."""
        self._optimizer.write_back(member)
        write_buffers_back(self._of_network, member, self._parts[member].model)
        write_buffers_back(self._of_loss, member, self._parts[member].loss)


# The next epoch of several trainings, together.
#
# Shapes: M members, B images a batch, D embedding dimensions, T steps of an epoch.

logger = logging.getLogger(__name__)


def run_epochs(trainings: Sequence[Training]) -> list[EpochRecord | Exception]:
    """Train the next epoch of each, all of which have the same :func:`stack_key` and more to train.

    Each comes to what :meth:`Training.run_epoch` would bring it to, but for rounding: its weights, its record and its
    checkpoints. What that would raise stands in the place of the record, and touches no other member.

    Members whose backbone is still frozen are a stack of their own. A stack that fails as a whole, such as one for
    which the device has not enough memory, is trained in halves.
    """
    results: dict[int, EpochRecord | Exception] = {}
    order = sorted(range(len(trainings)), key=lambda number: trainings[number].warming_up)
    for _, numbers in groupby(order, key=lambda number: trainings[number].warming_up):
        stack = list(numbers)
        results |= zip(stack, _run([trainings[number] for number in stack]))
    return [results[number] for number in range(len(trainings))]


def _run(trainings: Sequence[Training]) -> list[EpochRecord | Exception]:
    start = time.time()
    if len(trainings) == 1:
        return [_result(trainings[0], start, None)]
    try:
        outcomes = _train(trainings)
    except Exception as error:  # nothing of it is in the members yet
        logger.warning(
            "%d trainings cannot go on as one stack (%s: %s); they go on in halves.",
            len(trainings), type(error).__name__, error,
        )  # fmt: skip
        outcomes = None
    if outcomes is None:  # here, where the failure's frames and their tensors are gone
        middle = len(trainings) // 2
        return [*_run(trainings[:middle]), *_run(trainings[middle:])]
    embedded = _embedded([t for t, outcome in zip(trainings, outcomes) if isinstance(outcome, Trained)])
    return [_result(training, start, outcome, embedded.get(training)) for training, outcome in zip(trainings, outcomes)]


def _embedded(trainings: Sequence[Training]) -> dict[Training, list[Tensor]]:
    """The embeddings of what validates, by training: on a GPU, where each network alone would leave it idle.

    On a CPU, where it gains nothing, each embeds for itself, bit for bit as whoever uses its model later.
    """
    if len(trainings) < 2 or trainings[0].parts.device.type == "cpu":
        return {}
    return dict(zip(trainings, embedded_together(trainings)))


def embedded_together(trainings: Sequence[Training]) -> list[list[Tensor]]:
    """Of each training the embeddings of ``validated_views``, float32 on the CPU: see :func:`embed`."""
    config, device = trainings[0].spec.training, trainings[0].parts.device
    networks = SideBySide([training.parts.model for training in trainings])
    batch, precision = config.embedding_batch, config.precision
    views = [
        embed(networks, view, config.frame, batch_size=batch, device=device, precision=precision)
        for view in trainings[0].validated_views
    ]
    return [[view_NMD[:, member].contiguous() for view_NMD in views] for member in range(len(trainings))]


def _result(
    training: Training, start: float, outcome: Trained | Exception | None, embedded: Sequence[Tensor] | None = None
) -> EpochRecord | Exception:
    try:
        if outcome is None:
            return training.run_epoch()
        return outcome if isinstance(outcome, Exception) else training.end_epoch(start, outcome, embedded)
    except Exception as error:
        return error


def _train(trainings: Sequence[Training]) -> list[Trained | Exception]:
    """Take all steps of an epoch, and give the members what came of them; what alone would have diverged is left."""
    epochs = [training.begin_epoch() for training in trainings]
    batches = [list(training.parts.sampler.batches(epoch)) for training, epoch in zip(trainings, epochs)]
    indices_TMB = torch.stack([torch.stack(of_step) for of_step in zip(*batches, strict=True)])
    together = Together(trainings, epochs, steps=len(indices_TMB))
    steps = zip(indices_TMB, together.labels(indices_TMB))
    values_MT = torch.stack([together.step(indices_MB, labels_MB) for indices_MB, labels_MB in steps], dim=1).cpu()
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
