"""PNP's two-dimensional toy: four classes to train on and four others to test, and a network that embeds them.

The paper names the network, the embedding, the classes and their samples; where the classes lie, and how the network
is trained, is as in the example that it follows: Roth et al., Revisiting Training Strategies and Generalization
Performance in Deep Metric Learning (2020), in their code. There classes are stretches of lines. Those to train on lie
behind each other on the diagonal, so that a network needs one direction of the plane to tell them apart; of those to
test two lie upright and two level, and telling them apart takes both.

Shapes: N points; 2 is (x, y), of the plane or of an embedding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import nn

from trainables.losses.base import Loss, unit
from trainables.training.optimizers import Adam

POINTS: Final = 150
"""A class, section "Performance of Different PNP Variants"."""
HIDDEN: Final = 30
LEARNING_RATE, BATCH, STEPS = 0.03, 24, 200  # Roth et al., in their code

_TRAIN: Final = (
    ((0.1, 0.1), (0.3, 0.3)),
    ((0.35, 0.35), (0.55, 0.55)),
    ((0.6, 0.6), (0.8, 0.8)),
    ((0.85, 0.85), (1.05, 1.05)),
)
_TEST: Final = (
    ((0.2, 0.2), (0.2, 0.4)),
    ((0.2, 0.55), (0.2, 0.85)),
    ((0.4, 0.2), (0.6, 0.2)),
    ((0.7, 0.2), (0.9, 0.2)),
)
"""The two ends of each class."""


@dataclass(frozen=True, kw_only=True)
class Points:
    """Points of the plane with their classes."""

    places_N2: torch.Tensor
    labels_N: torch.Tensor


def points(seed: int) -> tuple[Points, Points]:
    """What is trained on and what is tested, drawn evenly from each class's line."""
    draws = np.random.default_rng(seed)
    return _drawn(_TRAIN, draws), _drawn(_TEST, draws)


def _drawn(lines: tuple[tuple[tuple[float, float], tuple[float, float]], ...], draws: np.random.Generator) -> Points:
    places = [np.array(low) + draws.random((POINTS, 1)) * (np.array(high) - low) for low, high in lines]
    return Points(
        places_N2=torch.tensor(np.concatenate(places), dtype=torch.float32),
        labels_N=torch.arange(len(lines)).repeat_interleave(POINTS),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread: over so few numbers several wait for each other ten times as long as they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def network(seed: int) -> nn.Module:
    """Two layers of 30 units before the two dimensions of the embedding, as they begin."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
        )


@one_thread()
def trained(loss: Loss, train: Points, seed: int) -> nn.Module:
    """The network of ``seed`` after training, on batches that the seed draws from all classes."""
    model = network(seed)
    optimizer = Adam(model.parameters(), lr=LEARNING_RATE)
    draws = torch.Generator().manual_seed(seed)
    for _ in range(STEPS):
        batch_B = torch.randperm(len(train.labels_N), generator=draws)[:BATCH]
        value = loss(model(train.places_N2[batch_B]), train.labels_N[batch_B])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return model


def embedded(model: nn.Module, some: Points) -> torch.Tensor:
    """The points on the circle of length 1 [N, 2]."""
    with torch.no_grad():
        return unit(model(some.places_N2))
