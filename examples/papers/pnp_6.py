"""PNP's toy before training and after it with each variant, on the circle.

Shapes: N points; 2 is (x, y).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from examples.papers.pnp_3 import built, named
from examples.papers.table import Shown
from examples.papers.toy import (
    BATCH,
    LEARNING_RATE,
    POINTS,
    STEPS,
    Points,
    embedded,
    network,
    one_thread,
    points,
    trained,
)
from search.report.drawing import COLOURS, FAINT
from search.report.text_table import TextTable
from trainables.losses.ranking import VARIANTS
from trainables.metrics.evaluation import evaluate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import nn

SEEDS: Final = tuple(range(10))
"""The first one's networks are drawn: the paper's seed."""
METRICS: Final = ("map_at_r", "nmi", "dists_intra", "dists_inter")
BEFORE: Final = "before training"
_RING: Final = 0.09
"""Between the circles on which the picture has the classes, so that one does not hide another."""


@one_thread()
def scores(model: "nn.Module", some: Points) -> dict[str, float]:
    """What the embeddings of some points are worth."""
    return evaluate(embedded(model, some), some.labels_N, METRICS)


def trainings(seeds: Sequence[int]) -> Mapping[str, list["nn.Module"]]:
    """The networks before training and after it with each variant, one a seed."""
    data = {seed: points(seed)[0] for seed in seeds}
    made = {BEFORE: [network(seed) for seed in seeds]}
    for variant in VARIANTS:
        loss = built(variant)
        made[named(loss)] = [trained(loss, data[seed], seed) for seed in seeds]
    return made


def pnp_6(figure: "Figure") -> Shown:
    """The points of the plane, and where the networks put them."""
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
"""By network, a seed's metrics by part."""


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
    """The training classes on the circle of length 1, each test class on a larger one of its own."""
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
