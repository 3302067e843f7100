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
from trainables.training.epoch_record import EpochRecord
from trainables.training.stack.network import SideBySide
from trainables.training.stack.together import Together
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
