"""The next epoch of several trainings, together.

Shapes: M members, B images a batch, D embedding dimensions, T steps of an epoch.
"""

import logging
import time
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from trainables.inference.embed import embed
from trainables.losses.used import summed
from trainables.spec import derived_seed
from trainables.training.epoch_record import EpochRecord
from trainables.training.stack.batches import load_together
from trainables.training.stack.losses import LossesInTurn, LossesTogether
from trainables.training.stack.network import SideBySide, embeddings, stacked, write_buffers_back
from trainables.training.stack.optimizer import StackedOptimizer
from trainables.training.train import Trained, Training, raise_if_diverged

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
    parts = [training.parts for training in trainings]
    specs = [training.spec for training in trainings]
    device, network, config = parts[0].device, parts[0].model, specs[0].training
    seeds = [derived_seed(spec.seed, epoch, "torch") for spec, epoch in zip(specs, epochs)]
    generators = [
        torch.Generator().manual_seed(derived_seed(spec.seed, epoch, "augment")) for spec, epoch in zip(specs, epochs)
    ]
    optimizer = StackedOptimizer([part.optimizer for part in parts], [spec.training.clip_grad for spec in specs])
    learning = dict(optimizer.learning())
    of_network = stacked([part.model for part in parts], learning)
    of_loss = stacked([part.loss for part in parts], learning)
    members = [part.loss for part in parts]
    losses = LossesTogether(members, device) if members[0].static_shapes else LossesInTurn(members, seeds, device)
    batches = [list(part.sampler.batches(epoch)) for part, epoch in zip(parts, epochs)]
    indices_TMB = torch.stack([torch.stack(of_step) for of_step in zip(*batches, strict=True)])
    labels = [part.labels_N[indices_TMB[:, member]] for member, part in enumerate(parts)]
    labels_TMB = torch.stack(labels, dim=1).to(device)
    steps = len(indices_TMB)
    optimizer.begin(steps)
    values: list[Tensor] = []
    for step in range(steps):
        images = load_together(
            parts[0].images, indices_TMB[step], config.augment, config.frame, device=device, generators=generators
        )
        embeddings_MBD = embeddings(network, of_network, images, config.precision)
        losses_M = losses(of_loss, embeddings_MBD, labels_TMB[step])
        optimizer.step(losses_M)
        values.append(losses_M.detach())
    values_MT = torch.stack(values, dim=1).cpu()
    outcomes: list[Trained | Exception] = []
    for member, (part, used) in enumerate(zip(parts, losses.used())):
        try:
            for value in values_MT[member].tolist():
                raise_if_diverged(value, epochs[member])
        except ArithmeticError as error:
            outcomes.append(error)
            continue
        optimizer.write_back(member)
        write_buffers_back(of_network, member, part.model)
        write_buffers_back(of_loss, member, part.loss)
        loss = values_MT[member].mean().item()
        outcomes.append(Trained(loss=loss, batches=steps, used=summed(used), together=len(trainings)))
    return outcomes
