"""PNP's toy, Fig. 6: a network on points of the plane, before training and after it with each variant.

The paper names the network, the embedding, the classes and their samples. Where the classes are, and how the network is
trained, follows the code of Roth et al., Revisiting Training Strategies and Generalization Performance in Deep Metric
Learning (2020). There classes are line segments. Training classes follow each other on the diagonal, so that one
direction of the plane separates them; of the test classes two are vertical and two horizontal, so that it takes both.

Shapes: N points; B points of a batch; 2 is (x, y), of the plane or of an embedding.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from torch import nn

from examples.papers.figures import Shown
from examples.papers.pnp import built, named
from search.show.drawing import COLOURS, FAINT
from search.text_table import TextTable
from trainables.common.vectors import unit
from trainables.losses.loss import Loss
from trainables.losses.pairs import VARIANTS
from trainables.metrics.evaluation import evaluate
from trainables.training.steps import Adam

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS: Final = 150
"""Points of a class, as in section "Performance of Different PNP Variants"."""
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
    """Draw training and test points uniformly from each class's line segment."""
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
    """Run torch with one thread: with several, tensors this small take ten times as long in synchronisation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def network(seed: int) -> nn.Module:
    """Build the untrained network: two layers of 30 units, and an embedding of two dimensions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(2, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
        )


@one_thread()
def trained(loss: Loss, train: Points, seed: int) -> nn.Module:
    """Train the network of ``seed`` on batches drawn from all classes."""
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
    """Compute the embeddings of points, normalised to the unit circle [N, 2]."""
    with torch.no_grad():
        return unit(model(some.places_N2))


# The figure.

SEEDS: Final = tuple(range(10))
"""Seeds of the table; the networks of the first one, the paper's, are drawn."""
METRICS: Final = ("map_at_r", "nmi", "dists_intra", "dists_inter")
BEFORE: Final = "before training"
_RING: Final = 0.09
"""Distance between the circles on which classes are drawn, so that they do not overlap."""


@one_thread()
def scores(model: nn.Module, some: Points) -> dict[str, float]:
    """Compute the metrics of the embeddings of points."""
    return evaluate(embedded(model, some), some.labels_N, METRICS)


def trainings(seeds: Sequence[int]) -> Mapping[str, list[nn.Module]]:
    """Train a network with each variant and seed; the untrained ones are under ``BEFORE``."""
    data = {seed: points(seed)[0] for seed in seeds}
    made = {BEFORE: [network(seed) for seed in seeds]}
    for variant in VARIANTS:
        loss = built(variant)
        made[named(loss)] = [trained(loss, data[seed], seed) for seed in seeds]
    return made


def pnp_6(figure: "Figure") -> Shown:
    """Draw the points of the plane, and their embeddings by each network."""
    train, test = points(SEEDS[0])
    made = trainings(SEEDS)
    panels = figure.subplots(2, 4).ravel()
    _plane(panels[0], train, test)
    for axes, (called, models) in zip(panels[1:], made.items(), strict=False):
        _circles(axes, embedded(models[0], train), train.labels_N, embedded(models[0], test), test.labels_N)
        axes.set_title(called)
    panels[-1].set_axis_off()
    panels[-1].legend(*panels[0].get_legend_handles_labels(), loc="center", ncols=1)
    found = {
        called: [
            {part: scores(model, some) for part, some in zip(("train", "test"), points(seed), strict=True)}
            for seed, model in zip(SEEDS, models, strict=True)
        ]
        for called, models in made.items()
    }
    return Shown(finding=_finding(found), table=_table(found))


Found = Mapping[str, list[dict[str, dict[str, float]]]]
"""Metrics by network, seed, part and name."""


def _values(found: Found, called: str, part: str, metric: str) -> np.ndarray:
    return np.array([entry[part][metric] for entry in found[called]])


def _finding(found: Found) -> str:
    bounded, fast = named(built("Ib")), named(built("Dq"))
    said = []
    for called in (bounded, fast):
        tested, intra = _values(found, called, "test", "map_at_r"), _values(found, called, "train", "dists_intra")
        said.append(
            f"{called} has MAP@R {tested.mean():.3f} on the test classes ({tested.min():.3f} to {tested.max():.3f} "
            f"over {len(SEEDS)} seeds) and a distance of {intra.mean():.3f} within the training classes"
        )
    untrained = _values(found, BEFORE, "test", "map_at_r")
    gain = _values(found, fast, "test", "map_at_r") - _values(found, bounded, "test", "map_at_r")
    return (
        f"{'; '.join(said)}. {fast} tells the test classes better apart than {bounded} with {(gain > 0).sum()} of "
        f"{len(SEEDS)} seeds, by {gain.mean():+.3f} ± {gain.std(ddof=1):.3f}, {_beside_paper(float(gain.mean()))}; "
        f"before training MAP@R is {untrained.mean():.3f} ({untrained.min():.3f} to {untrained.max():.3f})."
    )


def _beside_paper(gain: float) -> str:
    return "as in the paper's figure" if gain > 0 else "where the paper's figure has it the better one"


def _table(found: Found) -> TextTable:
    columns = [(part, metric) for part in ("train", "test") for metric in METRICS]
    return TextTable(
        title="",
        header=("network", *(f"{part}\n{metric}" for part, metric in columns)),
        rows=tuple(
            (
                called,
                *(
                    f"{values.mean():.3f}\n±{values.std(ddof=1):.3f}"
                    for values in (_values(found, called, *column) for column in columns)
                ),
            )
            for called in found
        ),
        labels=1,
        notes=(
            f"Mean and deviation over seeds {SEEDS[0]} to {SEEDS[-1]}; {POINTS} points a class, the network 30-30, "
            f"cosines; {STEPS} steps of Adam at {LEARNING_RATE:g} on batches of {BATCH}, as in the toy of Roth et al. "
            "(2020), from whose code the classes are: the paper names neither.",
        ),
    )


def _plane(axes: "Axes", train: Points, test: Points) -> None:
    axes.set_title("training and test data")
    for part, some, mark, first in (("training", train, "o", 0), ("test", test, "x", 4)):
        for label in some.labels_N.unique().tolist():
            places = some.places_N2[some.labels_N == label].numpy()
            axes.plot(*places.T, mark, color=COLOURS[first + label], markersize=4, label=f"{part} class {label + 1}")
    axes.set_aspect("equal")
    axes.set_xlabel("x of the input")
    axes.set_ylabel("y of the input")


def _circles(
    axes: "Axes", train_N2: torch.Tensor, train_N: torch.Tensor, test_N2: torch.Tensor, test_N: torch.Tensor
) -> None:
    """Draw the training classes on the unit circle, and each test class on a larger circle."""
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), 1, fill=False, edgecolor=FAINT, linewidth=0.6))
    for some_N2, some_N, mark, first, outwards in ((train_N2, train_N, "o", 0, 0), (test_N2, test_N, "x", 4, 1)):
        for label in some_N.unique().tolist():
            places = some_N2[some_N == label].numpy() * (1 + outwards * (label + 1) * _RING)
            axes.plot(*places.T, mark, color=COLOURS[first + label], markersize=4)
    axes.set_aspect("equal")
    axes.set_xlim(-1.5, 1.5)
    axes.set_ylim(-1.5, 1.5)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_xlabel("embedding; a ring outside it for each test class")
    axes.spines[["left", "bottom"]].set_visible(False)
