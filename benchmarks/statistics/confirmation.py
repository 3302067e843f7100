"""The choice among finalists: its loss against the best configuration of a search, and the bias of its estimate.

Searches are drawn from a model: configurations with normal or skewed qualities (few good ones, many worse), each tried
once with noise. The finalists (the best few by that value, and the default) are confirmed by each rule at equal cost.
``lost`` is the quality of the best configuration of the search minus that of the chosen one, in standard deviations of
quality; ``bias`` is the reported estimate minus the quality, in standard deviations of the noise. This vectorised
implementation is compared with the product's code. Run with ``make bench-statistics``.

Shapes: B searches, T trials, N candidates, S seeds.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from search.selection.choice import Confirmation, choose, rounds

Floats = NDArray[np.float64]

SEARCHES = 10_000


@dataclass(frozen=True, kw_only=True)
class Search:
    """The finalists' true quality and search value, [B, N], default first, and the best quality of all trials."""

    quality: Floats
    searched: Floats
    best: Floats
    spread: float


def searches(trials: int, noise: float, finalists: int, skewed: bool, generator: np.random.Generator) -> Search:
    """Draw searches of ``trials`` trials plus the default; ``noise`` is in standard deviations of quality."""
    quality = generator.standard_normal((SEARCHES, trials + 1))
    quality = -np.exp(0.8 * quality) if skewed else quality
    quality[:, 0] = -0.65 if skewed else 0.3  # the default is a little better than most
    spread = float(quality[:, 1:].std())
    searched = quality + noise * spread * generator.standard_normal(quality.shape)
    chosen = np.argsort(-searched[:, 1:], axis=1)[:, :finalists] + 1
    candidates = np.concatenate([np.zeros((SEARCHES, 1), int), chosen], axis=1)
    return Search(
        quality=np.take_along_axis(quality, candidates, 1),
        searched=np.take_along_axis(searched, candidates, 1),
        best=quality.max(1),
        spread=spread,
    )


def shrunk(sums: Floats, counts: Floats, noise: Floats) -> Floats:
    """Shrink means towards their common mean, by the moments of DerSimonian and Laird."""
    means, precisions = sums / counts, counts / noise
    total = precisions.sum(1, keepdims=True)
    centre = (precisions * means).sum(1, keepdims=True) / total
    excess = (precisions * (means - centre) ** 2).sum(1, keepdims=True) - (means.shape[1] - 1)
    spread = np.maximum(excess / (total - (precisions**2).sum(1, keepdims=True) / total), 0.05 * noise)
    weights = 1 / (spread + 1 / precisions)
    centre = (weights * means).sum(1, keepdims=True) / weights.sum(1, keepdims=True)
    return centre + spread * weights * (means - centre)


def chosen_by(rule: str, search: Search, fresh: Floats, seeds: int) -> tuple[NDArray[np.int64], Floats]:
    """Return each search's choice and its estimate, from ``fresh`` values [B, N, S], of which a rule uses some."""
    count = search.quality.shape[1]
    if rule == "mean":
        means = fresh[:, :, :seeds].mean(2)
        return means.argmax(1), means.max(1)
    first = (fresh[:, :, 0] + search.searched) / 2
    better = np.argsort(-first, axis=1, kind="stable")[:, : (count + 1) // 2]
    counts = np.ones_like(first)
    np.put_along_axis(counts, better, 1.0 + count * (seeds - 1) // better.shape[1], 1)
    used = np.arange(fresh.shape[2]) < counts[:, :, None]
    sums = np.where(used, fresh, 0).sum(2)
    squares = np.where(used, (fresh - (sums / counts)[:, :, None]) ** 2, 0).sum((1, 2))
    noise = (squares / (counts - 1).sum(1))[:, None]
    choice = shrunk(sums + search.searched, counts + 1, noise).argmax(1)
    return choice, np.take_along_axis(shrunk(sums, counts, noise), choice[:, None], 1)[:, 0]


def compare_with_the_code(search: Search, fresh: Floats, seeds: int) -> None:
    """Check that the simulation equals the product's code."""
    choices, reported = chosen_by("halving", search, fresh, seeds)
    for number in range(50):

        def confirmed(candidate: int, count: int, number: int = number) -> Confirmation:
            return Confirmation(
                number=candidate,
                params={},
                searched=(float(search.searched[number, candidate]),),
                values=tuple(fresh[number, candidate, :count].tolist()),
                splits=(0,) * count,
                best_epochs=(),
                failed=0,
            )

        numbers = range(search.quality.shape[1])
        wanted = rounds("halving", [confirmed(candidate, 1) for candidate in numbers], seeds)
        found = choose("halving", {candidate: confirmed(candidate, wanted[candidate]) for candidate in numbers})
        assert found is not None
        assert found[0].number == choices[number]
        assert found[0].estimate is not None
        assert np.isclose(found[0].estimate, reported[number])


def main() -> None:
    """Print both rules next to each other."""
    generator = np.random.default_rng(0)
    console = Console(width=140, highlight=False)
    layout = "{:8} {:>7} {:>10} {:>6} {:>6} {:>18} {:>18} {:>18} {:>18}"
    console.print(
        layout.format(
            "quality", "trials", "finalists", "seeds", "noise", "lost: mean", "halving", "bias: mean", "halving"
        )
    )
    budgets = ((3, 2), (5, 3))
    for skewed, trials, (finalists, seeds), noise in itertools.product(
        (False, True), (12, 40), budgets, (0.25, 0.5, 1.0, 2.0)
    ):
        search = searches(trials, noise, finalists, skewed, generator)
        shape = (*search.quality.shape, 1 + 2 * seeds)
        fresh = search.quality[:, :, None] + noise * search.spread * generator.standard_normal(shape)
        compare_with_the_code(search, fresh, seeds)
        lost, flatters = [], []
        for rule in ("mean", "halving"):
            choice, reported = chosen_by(rule, search, fresh, seeds)
            quality = np.take_along_axis(search.quality, choice[:, None], 1)[:, 0]
            lost.append(f"{(search.best - quality).mean() / search.spread:.3f}")
            flatters.append(f"{(reported - quality).mean() / (noise * search.spread):+.2f}")
        kind = "skewed" if skewed else "normal"
        console.print(layout.format(kind, trials, f"{finalists}+1", seeds, noise, *lost, *flatters))


if __name__ == "__main__":
    main()
