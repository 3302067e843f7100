"""Sampling Wisely's toy: what lies beside the boundary of the first k is moved, or a triplet far from it.

The query and its candidates are points of a sphere, drawn around the query: a point's distance from the middle is its
angle to the query, which ranks as the cosine does.

Shapes: N candidates, 2 is (x, y) of the picture, 3 a point of the sphere.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.table import Shown
from examples.papers.worked_ranking import MARGIN, NEGATIVE, POSITIVE
from search.report.drawing import FAINT, INK
from search.report.text_table import TextTable
from trainables.losses.base import unit
from trainables.losses.pairs import Triplet
from trainables.losses.ranking import TopKPrecision
from trainables.metrics.evaluation import per_query_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K: Final = 5
STEP: Final = 0.02
"""Of gradient descent on the candidates' embeddings; the query stays."""

# name, is of the query's class, angle to the query, direction in the picture in degrees
_CANDIDATES: Final = (
    ("", True, 0.24, 110),
    ("", True, 0.38, 205),
    ("", True, 0.46, 345),
    ("A", False, 0.54, 50),
    ("B", False, 0.57, 250),
    ("C", True, 0.68, 150),
    ("D", True, 0.70, 300),
    ("E", True, 1.15, 20),
    ("F", False, 0.98, 85),
    ("", False, 1.05, 185),
    ("", False, 1.12, 230),
    ("", False, 1.02, 330),
    ("", False, 1.18, 125),
)
NAMES: Final = tuple(name for name, *_ in _CANDIDATES)
SAME_N: Final = tuple(same for _, same, *_ in _CANDIDATES)

Terms = Callable[[torch.Tensor], torch.Tensor]
"""From the query's similarities [1, N] to a loss's terms."""


def start() -> torch.Tensor:
    """The candidates before any step [N, 3]; the query is (0, 0, 1)."""
    angle_N, turn_N = (torch.tensor([entry[place] for entry in _CANDIDATES], dtype=torch.float64) for place in (2, 3))
    turn_N = turn_N.deg2rad()
    return torch.stack((angle_N.sin() * turn_N.cos(), angle_N.sin() * turn_N.sin(), angle_N.cos()), dim=1)


def top_k_terms(similarities_1N: torch.Tensor) -> torch.Tensor:
    """Top-k precision of the query."""
    same_1N = torch.tensor([SAME_N])
    loss = TopKPrecision(num_classes=1, embedding_dim=3, margin=MARGIN, k=K)
    return loss.terms(similarities_1N, same_1N, ~same_1N)


def triplet_terms(similarities_1N: torch.Tensor) -> torch.Tensor:
    """The one triplet {query, E, F}."""
    same_1N, different_1N = (torch.tensor([[name == letter for name in NAMES]]) for letter in "EF")
    loss = Triplet(num_classes=1, embedding_dim=3, margin=MARGIN, mining="all")
    return loss.terms(similarities_1N, same_1N, different_1N)


def stepped(points_N3: torch.Tensor, terms: Terms) -> torch.Tensor:
    """The candidates after a step of gradient descent."""
    points_N3 = points_N3.detach().requires_grad_()
    (gradient_N3,) = torch.autograd.grad(terms(unit(points_N3)[None, :, 2]).sum(), points_N3)
    return unit(points_N3.detach() - STEP * gradient_N3)


def precision(points_N3: torch.Tensor) -> float:
    """The query's precision at k."""
    query_13 = torch.tensor([[0, 0, 1]], dtype=points_N3.dtype)
    labels = torch.tensor([0, *(0 if same else 1 for same in SAME_N)])
    name = f"precision_at_{K}"
    return float(per_query_metrics(torch.cat((query_13, points_N3)), labels, [name], queries=1)[name][0])


def descended(terms: Terms, steps: int | None) -> tuple[torch.Tensor, int]:
    """The candidates after ``steps``; None: after as many as it takes until the precision is 1."""
    points_N3, done = start(), 0
    while done != steps and (steps is not None or precision(points_N3) < 1):
        points_N3, done = stepped(points_N3, terms), done + 1
    return points_N3, done


def sampling_1(figure: "Figure") -> Shown:
    """The candidates before, after steps of top-k precision, and after as many of the triplet."""
    before_N3 = start()
    wisely_N3, steps = descended(top_k_terms, None)
    triplet_N3, _ = descended(triplet_terms, steps)
    called = ("before", f"{steps} steps of top-{K} precision", f"{steps} steps of the triplet {{query, E, F}}")
    shown = (before_N3, wisely_N3, triplet_N3)
    precisions = [precision(points_N3) for points_N3 in shown]
    panels = figure.subplots(1, 3)
    for axes, title, points_N3, found in zip(panels, called, shown, precisions, strict=True):
        _panel(axes, before_N3, points_N3)
        axes.set_title(f"{title}: precision at {K} is {found:g}")
    panels[0].set_xlabel("distance from the middle: angle to the query")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    moved = [
        [name for name, angle in zip(NAMES, _angles(before_N3, points_N3), strict=True) if name and angle > 1e-6]
        for points_N3 in shown[1:]
    ]
    return Shown(
        finding=(
            f"Top-{K} precision moves {', '.join(moved[0])}, which lie beside the boundary, and after {steps} steps "
            f"the precision at {K} has gone from {precisions[0]:g} to {precisions[1]:g}; as many steps of the triplet "
            f"move {' and '.join(moved[1])} and leave it at {precisions[2]:g}."
        ),
        table=TextTable(
            title="",
            header=("candidate", "is", *(f"cosine {title}" for title in called)),
            rows=tuple(
                (name, "positive" if same else "negative", *(f"{points_N3[at, 2]:.4f}" for points_N3 in shown))
                for at, (name, same) in enumerate(zip(NAMES, SAME_N, strict=True))
                if name
            ),
            labels=1,
            notes=(
                f"The paper draws a sketch: these {len(NAMES)} candidates are laid out as it has them. Gradient "
                f"descent with steps of {STEP:g} on the candidates' embeddings; γ = {MARGIN:g}.",
            ),
        ),
    )


def _angles(one_N3: torch.Tensor, other_N3: torch.Tensor) -> list[float]:
    found: list[float] = (one_N3 - other_N3).norm(dim=1).tolist()
    return found


def _places(points_N3: torch.Tensor) -> NDArray[np.float64]:
    """Where the picture has them [N, 2]."""
    angle_N = points_N3[:, 2].clamp(-1, 1).arccos()
    places_N2: NDArray[np.float64] = (unit(points_N3[:, :2]) * angle_N[:, None]).numpy()
    return places_N2


def _panel(axes: "Axes", before_N3: torch.Tensor, points_N3: torch.Tensor) -> None:
    from matplotlib.patches import Circle

    from_N2, places_N2 = _places(before_N3), _places(points_N3)
    ranked = np.sort(np.hypot(*places_N2.T))
    axes.add_patch(Circle((0, 0), (ranked[K - 1] + ranked[K]) / 2, fill=False, linestyle="--", edgecolor=FAINT))
    axes.plot([], [], "--", color=FAINT, label=f"the first {K} are within")
    axes.plot([], [], "o", color=POSITIVE, markersize=8, label="positive")
    axes.plot([], [], "s", color=NEGATIVE, markersize=8, label="negative")
    axes.plot([], [], "o", color=FAINT, markersize=5, markerfacecolor="none", label="where it was")
    axes.plot([0], [0], "*", color=INK, markersize=13)
    axes.annotate("query", (0, 0), (6, -13), textcoords="offset points", color=INK)
    for name, same, before_2, place_2 in zip(NAMES, SAME_N, from_N2, places_N2, strict=True):
        if np.abs(before_2 - place_2).max() > 1e-6:
            axes.annotate("", place_2, before_2, arrowprops={"arrowstyle": "->", "color": INK, "shrinkB": 5})
            axes.plot(*before_2, "o" if same else "s", color=FAINT, markersize=5, markerfacecolor="none")
        axes.plot(*place_2, "o" if same else "s", color=POSITIVE if same else NEGATIVE, markersize=8)
        aside_2 = 14 * np.array([-place_2[1], place_2[0]]) / np.hypot(*place_2)  # candidates move towards the middle
        axes.annotate(name, place_2, aside_2, textcoords="offset points", ha="center", va="center", fontweight="bold")
    axes.set_aspect("equal")
    axes.set_xlim(-1.3, 1.3)
    axes.set_ylim(-1.2, 1.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
