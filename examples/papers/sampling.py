"""Figures of Lu et al., Sampling Wisely: a toy (Fig. 1) and two worked rankings (Figs. 2 and 3).

Shapes: 1 query, N candidates; 2 is (x, y) of the picture, 3 a point of the sphere.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.figures import INK, Shown
from search.show.drawing import COLOURS, FAINT
from search.text_table import NOTHING, TextTable
from trainables.common.vectors import unit
from trainables.losses.mining import Pairs
from trainables.losses.pairs import PairLoss, TopKPrecision, Triplet
from trainables.metrics.evaluation import per_query_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN: Final = 0.1
"""γ in section 4.4; the figures print ŝ = s + γ for negatives and s for positives."""
POSITIVE: Final = COLOURS[1]
NEGATIVE: Final = COLOURS[0]
"""Orange for positives and blue for negatives, as in the paper."""


@dataclass(frozen=True, kw_only=True)
class WorkedRanking:
    """A ranking by ŝ. The paper's text gives only the scores in ``printed``; the others are chosen between them."""

    scores: tuple[float, ...]
    relevant: tuple[int, ...]
    printed: tuple[float, ...]
    k: int
    misplaced_negatives: tuple[float, ...]
    misplaced_positives: tuple[float, ...]
    loss: float


FIG_2: Final = WorkedRanking(
    scores=(0.8, 0.75, 0.7, 0.65, 0.62, 0.6, 0.55, 0.5, 0.45, 0.4),
    relevant=(0, 1, 0, 0, 1, 0, 1, 0, 0, 1),
    printed=(0.8, 0.7, 0.65, 0.6, 0.55, 0.4),
    k=6,
    misplaced_negatives=(0.65, 0.6),
    misplaced_positives=(0.55, 0.4),
    loss=0.30,
)
FIG_3: Final = WorkedRanking(
    scores=(0.9, 0.8, 0.75, 0.7, 0.65, 0.55, 0.53, 0.5, 0.45, 0.4),
    relevant=(1, 0, 1, 1, 0, 1, 1, 0, 0, 1),
    printed=(0.8, 0.65, 0.55, 0.53, 0.4),
    k=5,
    misplaced_negatives=(0.8, 0.65),
    misplaced_positives=(0.55, 0.53),
    loss=0.37,
)


class Worked(NamedTuple):
    """Loss of the query, and its derivative by the similarity of each candidate: float64 [N]."""

    loss: float
    pull_N: NDArray[np.float64]


def worked(ranking: WorkedRanking) -> Mapping[str, Worked]:
    """Compute the losses of the ranking: top-k precision, and the sum of triplets for each mining."""
    topk = TopKPrecision(num_classes=1, embedding_dim=3, margin=MARGIN, k=ranking.k)
    found = {f"top-{ranking.k} precision": _worked(ranking, topk)}
    for mining, called in {"hard": "hard triplet", "semi_hard": "semi-hard triplets", "all": "all triplets"}.items():
        mined = Triplet(num_classes=1, embedding_dim=3, margin=MARGIN, mining=mining, reduction="sum")
        found[called] = _worked(ranking, mined)
    return found


def _of_query(
    loss: PairLoss, similarities_1N: torch.Tensor, same_1N: torch.Tensor, different_1N: torch.Tensor
) -> torch.Tensor:
    return loss.over(Pairs(similarities_BB=similarities_1N, same_BB=same_1N, different_BB=different_1N, dimensions=3))


def _worked(ranking: WorkedRanking, of: PairLoss) -> Worked:
    same_1N = torch.tensor([ranking.relevant], dtype=torch.bool)
    similarities_1N = torch.tensor([ranking.scores], dtype=torch.float64) - MARGIN * (~same_1N).double()
    similarities_1N.requires_grad_()
    loss = _of_query(of, similarities_1N, same_1N, ~same_1N)
    (pull_1N,) = torch.autograd.grad(loss, similarities_1N)
    return Worked(loss.item(), pull_1N[0].numpy())


def sampling_2(figure: "Figure") -> Shown:
    """Draw the ranking with fewer positives than k."""
    return _draw(figure, FIG_2)


def sampling_3(figure: "Figure") -> Shown:
    """Draw the ranking with at least k positives."""
    return _draw(figure, FIG_3)


def _draw(figure: "Figure", ranking: WorkedRanking) -> Shown:
    """Draw the ranking as boxes, and below them each loss's derivative by every similarity."""
    from matplotlib.patches import Rectangle

    losses = worked(ranking)
    axes = figure.subplots()
    for place, (score, relevant) in enumerate(zip(ranking.scores, ranking.relevant, strict=True)):
        colour = POSITIVE if relevant else NEGATIVE
        axes.add_patch(Rectangle((place - 0.42, -0.38), 0.84, 0.76, facecolor=colour, alpha=0.85, linewidth=0))
        printed = score in ranking.printed
        weight = "bold" if printed else "normal"
        axes.text(place, 0, f"{score:g}" if printed else f"({score:g})", ha="center", va="center", color="white")
        axes.texts[-1].set_fontweight(weight)
        for row, entry in enumerate(losses.values(), start=1):
            pull = entry.pull_N[place]
            axes.text(
                place, row, f"{pull:+g}".replace("-", "−") if pull else "·", ha="center", va="center", color=colour
            )
            axes.texts[-1].set_fontweight("bold" if pull else "normal")
    axes.axvline(ranking.k - 0.5, ymin=0.02, ymax=0.98, color=INK, linewidth=1.2)
    axes.text(ranking.k - 0.56, -0.72, f"top {ranking.k}", ha="right", va="center", color=INK)
    axes.text(ranking.k - 0.44, -0.72, "beyond", ha="left", va="center", color=INK)
    axes.text(-0.45, -0.72, "orange: positives, blue: negatives", va="center", color=FAINT)
    labels = [f"{called}: derivative" for called in losses]
    axes.set_yticks(range(len(losses) + 1), ["score ŝ (in brackets: filled in)", *labels])
    axes.set_xticks(range(len(ranking.scores)), [str(place + 1) for place in range(len(ranking.scores))])
    axes.set_xlabel("rank; a derivative of +1 pushes a candidate away, −1 pulls it to the query")
    axes.set_xlim(-0.5, len(ranking.scores) - 0.5)
    axes.set_ylim(len(losses) + 0.5, -1)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return _shown(ranking, losses)


def _shown(ranking: WorkedRanking, losses: Mapping[str, Worked]) -> Shown:
    scores_N = np.array(ranking.scores)
    (topk, ours), *others = losses.items()
    negatives, positives = (tuple(scores_N[sign * ours.pull_N > 0].tolist()) for sign in (1, -1))
    agrees = (
        negatives == ranking.misplaced_negatives
        and positives == ranking.misplaced_positives
        and abs(ours.loss - ranking.loss) < 1e-9
    )
    hard = losses["hard triplet"].pull_N
    count = sum(ranking.relevant)
    return Shown(
        finding=(
            f"k = {ranking.k}, {count} positives among {len(scores_N)}: our {topk} loss is ({_sum(negatives)}) − "
            f"({_sum(positives)}) = {ours.loss:.2f}; the paper's is {ranking.loss:.2f}, "
            f"{'of the same candidates' if agrees else 'which is another'}. Hard mining takes the negative with "
            f"{_sum(scores_N[hard > 0])} and the positive with {_sum(scores_N[hard < 0])} instead."
        ),
        table=TextTable(
            title="",
            header=("loss", "negatives pushed", "positives pulled", "ours", "the paper's"),
            rows=(
                (topk, _list(negatives), _list(positives), f"{ours.loss:.2f}", f"{ranking.loss:.2f}"),
                *(
                    (
                        called,
                        _list(scores_N[entry.pull_N > 0]),
                        _list(scores_N[entry.pull_N < 0]),
                        f"{entry.loss:.2f}",
                        NOTHING,
                    )
                    for called, entry in others
                ),
            ),
            labels=1,
            notes=(
                f"Candidates by their ŝ, γ = {MARGIN:g}; the text prints {_list(ranking.printed)}, the others are "
                "filled in between them. A triplet loss is the sum over the triplets of this query.",
            ),
        ),
    )


def _sum(scores: "NDArray[np.float64] | tuple[float, ...]") -> str:
    return " + ".join(f"{score:g}" for score in scores)


def _list(scores: "NDArray[np.float64] | tuple[float, ...]") -> str:
    return ", ".join(f"{score:g}" for score in scores)


# Fig. 1. The candidates are points of a sphere around the query. In the picture a point's distance from the centre is
# its angle to the query, which ranks as the cosine does.

K: Final = 5
STEP: Final = 0.02
"""Step size of gradient descent on the candidates' embeddings; the query is fixed."""

# name, True for the query's class, angle to the query in radians, direction in the picture in degrees
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
"""Function from the query's similarities [1, N] to the sum of the terms of a loss."""


def start() -> torch.Tensor:
    """Return the initial candidates [N, 3]; the query is (0, 0, 1)."""
    angle_N, turn_N = (torch.tensor([entry[place] for entry in _CANDIDATES], dtype=torch.float64) for place in (2, 3))
    turn_N = turn_N.deg2rad()
    return torch.stack((angle_N.sin() * turn_N.cos(), angle_N.sin() * turn_N.sin(), angle_N.cos()), dim=1)


def top_k_terms(similarities_1N: torch.Tensor) -> torch.Tensor:
    """Return the top-k precision loss of the query."""
    same_1N = torch.tensor([SAME_N])
    loss = TopKPrecision(num_classes=1, embedding_dim=3, margin=MARGIN, k=K)
    return _of_query(loss, similarities_1N, same_1N, ~same_1N)


def triplet_terms(similarities_1N: torch.Tensor) -> torch.Tensor:
    """Return the loss of the triplet {query, E, F}."""
    same_1N, different_1N = (torch.tensor([[name == letter for name in NAMES]]) for letter in "EF")
    loss = Triplet(num_classes=1, embedding_dim=3, margin=MARGIN, mining="all", reduction="sum")
    return _of_query(loss, similarities_1N, same_1N, different_1N)


def stepped(points_N3: torch.Tensor, terms: Terms) -> torch.Tensor:
    """Return the candidates after one step of gradient descent."""
    points_N3 = points_N3.detach().requires_grad_()
    (gradient_N3,) = torch.autograd.grad(terms(unit(points_N3)[None, :, 2]), points_N3)
    return unit(points_N3.detach() - STEP * gradient_N3)


def precision(points_N3: torch.Tensor) -> float:
    """Compute the query's precision at k."""
    query_13 = torch.tensor([[0, 0, 1]], dtype=points_N3.dtype)
    labels = torch.tensor([0, *(0 if same else 1 for same in SAME_N)])
    name = f"precision_at_{K}"
    return float(per_query_metrics(torch.cat((query_13, points_N3)), labels, [name], queries=1)[name][0])


def descended(terms: Terms, steps: int | None) -> tuple[torch.Tensor, int]:
    """Return the candidates after ``steps``, or with None after the fewest steps that reach a precision of 1."""
    points_N3, done = start(), 0
    while done != steps and (steps is not None or precision(points_N3) < 1):
        points_N3, done = stepped(points_N3, terms), done + 1
    return points_N3, done


def sampling_1(figure: "Figure") -> Shown:
    """Draw the candidates before training, after steps on top-k precision, and after as many on the triplet."""
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
            f"Top-{K} precision moves {', '.join(moved[0])}, which are next to the boundary, and {steps} steps "
            f"change the precision at {K} from {precisions[0]:g} to {precisions[1]:g}; as many steps of the triplet "
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
                f"The paper's figure is a sketch; these {len(NAMES)} candidates are placed as in it. Gradient "
                f"descent with steps of {STEP:g} on the candidates' embeddings; γ = {MARGIN:g}.",
            ),
        ),
    )


def _angles(one_N3: torch.Tensor, other_N3: torch.Tensor) -> list[float]:
    found: list[float] = (one_N3 - other_N3).norm(dim=1).tolist()
    return found


def _places(points_N3: torch.Tensor) -> NDArray[np.float64]:
    """Return the positions of candidates in the picture [N, 2]."""
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
        aside_2 = 14 * np.array([-place_2[1], place_2[0]]) / np.hypot(*place_2)  # not along their movement
        axes.annotate(name, place_2, aside_2, textcoords="offset points", ha="center", va="center", fontweight="bold")
    axes.set_aspect("equal")
    axes.set_xlim(-1.3, 1.3)
    axes.set_ylim(-1.2, 1.2)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
