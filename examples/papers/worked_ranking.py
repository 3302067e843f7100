"""The worked losses of Sampling Wisely, Figs. 2 and 3: one query's ranking, and what each loss asks of every candidate.

Shapes: 1 query, N candidates in the ranking's order.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from examples.papers.table import Shown
from search.report.drawing import COLOURS, FAINT, INK
from search.report.text_table import NOTHING, TextTable
from trainables.losses.pairs import Triplet
from trainables.losses.ranking import TopKPrecision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARGIN: Final = 0.1
"""γ of section 4.4; the figures print ŝ = s + γ for negatives and s for positives."""
POSITIVE: Final = COLOURS[1]
NEGATIVE: Final = COLOURS[0]
"""The paper's orange and blue."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """A ranking by ŝ. The text prints the scores at ``printed`` alone; the others are filled in between them."""

    scores: tuple[float, ...]
    relevant: tuple[int, ...]
    printed: tuple[float, ...]
    k: int
    misplaced_negatives: tuple[float, ...]
    misplaced_positives: tuple[float, ...]
    loss: float


FIG_2: Final = Ranking(
    scores=(0.8, 0.75, 0.7, 0.65, 0.62, 0.6, 0.55, 0.5, 0.45, 0.4),
    relevant=(0, 1, 0, 0, 1, 0, 1, 0, 0, 1),
    printed=(0.8, 0.7, 0.65, 0.6, 0.55, 0.4),
    k=6,
    misplaced_negatives=(0.65, 0.6),
    misplaced_positives=(0.55, 0.4),
    loss=0.30,
)
FIG_3: Final = Ranking(
    scores=(0.9, 0.8, 0.75, 0.7, 0.65, 0.55, 0.53, 0.5, 0.45, 0.4),
    relevant=(1, 0, 1, 1, 0, 1, 1, 0, 0, 1),
    printed=(0.8, 0.65, 0.55, 0.53, 0.4),
    k=5,
    misplaced_negatives=(0.8, 0.65),
    misplaced_positives=(0.55, 0.53),
    loss=0.37,
)


class Worked(NamedTuple):
    """A loss of the query, and its derivative by the similarity of each candidate: float64 [N]."""

    loss: float
    pull_N: NDArray[np.float64]


def worked(ranking: Ranking) -> Mapping[str, Worked]:
    """Each loss of the ranking: top-k precision's, and the sum of the triplets that each mining finds."""
    topk = TopKPrecision(num_classes=1, embedding_dim=1, margin=MARGIN, k=ranking.k)
    found = {f"top-{ranking.k} precision": _worked(ranking, topk.terms)}
    for mining, called in {"hard": "hard triplet", "semi_hard": "semi-hard triplets", "all": "all triplets"}.items():
        mined = Triplet(num_classes=1, embedding_dim=1, margin=MARGIN, mining=mining)
        found[called] = _worked(ranking, mined.terms)
    return found


def _worked(ranking: Ranking, terms: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]) -> Worked:
    same_1N = torch.tensor([ranking.relevant], dtype=torch.bool)
    similarities_1N = torch.tensor([ranking.scores], dtype=torch.float64) - MARGIN * (~same_1N).double()
    similarities_1N.requires_grad_()
    loss = terms(similarities_1N, same_1N, ~same_1N).sum()
    (pull_1N,) = torch.autograd.grad(loss, similarities_1N)
    return Worked(loss.item(), pull_1N[0].numpy())


def sampling_2(figure: "Figure") -> Shown:
    """Fewer positives than k."""
    return _draw(figure, FIG_2)


def sampling_3(figure: "Figure") -> Shown:
    """k positives or more."""
    return _draw(figure, FIG_3)


def _draw(figure: "Figure", ranking: Ranking) -> Shown:
    """The ranking as boxes, and below them each loss's derivative by every similarity."""
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


def _shown(ranking: Ranking, losses: Mapping[str, Worked]) -> Shown:
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
