"""Several trainings as one, from the first step of an epoch to the last.

Shapes: M members, B images a batch, T steps.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from trainables.losses.used import Used
from trainables.spec import derived_seed
from trainables.training.stack.batches import load_together
from trainables.training.stack.losses import LossesInTurn, LossesTogether
from trainables.training.stack.network import embeddings, stacked, write_buffers_back
from trainables.training.stack.optimizer import StackedOptimizer
from trainables.training.train import Training


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
