"""The error rate, the power and the number of seeds of ``final.seeds: auto``, compared with fixed numbers of seeds.

Tables are drawn as in ``benchmarks/statistics/pairs.py``. The error is an upper bound for every rule by which a test
may end: the share of tables in which some look calls some pair different, although all are equal. The tables of the
power end as the product's do. Run with ``make bench-statistics``.
"""

import itertools
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.statistics.pairs import (
    CLASSES,
    LEVEL,
    NULLS,
    SHARES,
    TABLES,
    TESTS,
    Design,
    bonferroni,
    pairs,
    share_wrong,
)
from search.config.stage_sections import LOOKS
from search.report.pairs import is_open
from search.report.scored import Look, share_of
from search.report.statistics import ScoredRows

Floats = NDArray[np.float64]

ENDED_TABLES = 300
GAPS = (0.0, 2.0, 4.0)
"""The distances of neighbouring rows, in deviations of a training."""


def rejected(tables: Floats, counts_C: Floats, seeds: int, share: float = 1.0) -> NDArray[np.bool_]:
    """Return which pairs differ after ``seeds`` seeds with a ``share`` of the error, [B, P]."""
    return bonferroni(TESTS["ours"](tables[:, :, :seeds], counts_C)) <= LEVEL * share


def errors(design: Design, generator: np.random.Generator) -> list[float]:
    """Return the shares of tables with a wrongly different pair: with the fewest and most seeds, and at any look."""
    tables, counts_C = design.tables(TABLES, generator), design.counts_C
    at_any = [rejected(tables, counts_C, seeds, share_of(seeds, LOOKS)) for seeds in LOOKS]
    fixed = [rejected(tables, counts_C, seeds) for seeds in (LOOKS[0], LOOKS[-1])]
    return [share_wrong(design, tables, found) for found in (*fixed, np.logical_or.reduce(at_any))]


def ended(scores: Floats, counts_C: NDArray[np.int64]) -> tuple[float, int]:
    """Return the share of pairs that are found, and the seeds after which the test of a table [R, S, C] ends."""
    wanted = pairs(len(scores))
    for seeds in LOOKS:
        look = Look(seeds=seeds, of=LOOKS)
        tested = ScoredRows({row: sums * counts_C for row, sums in enumerate(scores[:, :seeds])}, counts_C)
        found = [tested.contrast({a: 1.0, b: -1.0}, len(wanted) / look.share) for a, b in wanted]
        if not any(is_open(estimate, look, len(wanted), None) for estimate in found):
            break
    return float(np.mean([estimate.differs for estimate in found])), seeds


def main() -> None:
    """Print the errors, the largest over classes and shares of noise, and the power at the number of seeds."""
    generator = np.random.default_rng(0)
    console = Console(width=120, highlight=False)
    fewest, most = LOOKS[0], LOOKS[-1]
    console.print(f"Some pair wrongly called different, largest share over {CLASSES} classes and {list(SHARES)}:")
    console.print(f"{'rows':>5}  {'null':18} {f'{fewest} seeds':>9} {f'{most} seeds':>9} {f'any look of {LOOKS}':>24}")
    for rows, (title, null) in itertools.product((2, 3, 6, 10), NULLS.items()):
        designs = itertools.product(CLASSES, SHARES)
        found = [
            errors(replace(Design(rows=rows, seeds=most, classes=classes, shares=shares), **null), generator)
            for classes, shares in designs
        ]
        worst = np.max(found, axis=0)
        console.print(f"{rows:>5}  {title:18} {worst[0]:>9.3f} {worst[1]:>9.3f} {worst[2]:>24.3f}")
    console.print("Pairs found, and the mean number of seeds (48 classes; rows apart by deviations of a training):")
    console.print(f"{'rows':>5} {'noise':>8} {'apart':>6} {f'{fewest} seeds':>9} {f'{most} seeds':>9} {'auto':>16}")
    for rows, shares, gap in itertools.product((2, 4, 8), SHARES, GAPS):
        design = Design(rows=rows, seeds=most, classes=48, shares=shares)
        apart = gap * np.hypot(SHARES[shares][0], SHARES[shares][2]) * np.arange(rows)
        tables = design.tables(ENDED_TABLES, generator) + apart[:, None, None]
        fixed = [float(rejected(tables, design.counts_C, seeds).mean()) for seeds in (fewest, most)]
        found, seeds = np.mean([ended(scores, design.counts_C.astype(np.int64)) for scores in tables], axis=0)
        console.print(
            f"{rows:>5} {shares:>8} {gap:>6.0f} {fixed[0]:>9.3f} {fixed[1]:>9.3f} {f'{found:.3f} @ {seeds:.1f}':>16}"
        )


if __name__ == "__main__":
    main()
