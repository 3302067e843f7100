"""The error rate and the power of the test of a pair, and how often all intervals of a table hold.

Tables of trainings are drawn from a model: each row has noise of its seeds, of its classes, and of their interaction.
Three tests are applied to the same tables: the paired t over seeds combined with a bootstrap over classes (the larger
p), the t test with the variance components of each row alone, and ours. All are corrected for the pairs of a table as
ours (Bonferroni). These vectorised implementations are independent of the product's code, with which ours is compared.
Run with ``python -m benchmarks statistics``; it takes minutes.

Shapes: B tables, R rows, S seeds, C classes, P pairs.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from scipy.special import ndtr, stdtr

from search.results.statistics import ScoredRows

Floats = NDArray[np.float64]
Test = Callable[[Floats, Floats], Floats]

TABLES, POWER_TABLES, UNTRAINED_TABLES = 2000, 4000, 2000
LEVEL = 0.05
SHARES = {"seeds": (1.0, 0.2, 0.35), "classes": (0.2, 1.0, 0.35), "both": (0.7, 0.5, 0.5)}
"""The standard deviations of a mean of one seed due to seeds, classes and their interaction."""


@dataclass(frozen=True, kw_only=True)
class Design:
    """A design of tables with ``rows`` rows; ``noisy`` multiplies the seed noise of the first row.

    Each seed of the first row falls by ``collapse`` seed deviations with probability 1/3. ``shift`` moves the first
    row, in standard deviations of a training.
    """

    rows: int
    seeds: int
    classes: int
    shares: str = "seeds"
    noisy: float = 1.0
    collapse: float = 0.0
    unequal: bool = False
    skewed: bool = False
    shift: float = 0.0

    @property
    def counts_C(self) -> Floats:
        """The number of queries of each class."""
        if not self.unequal:
            return np.full(self.classes, 20.0)
        return np.round(np.exp(0.8 * np.random.default_rng(5).standard_normal(self.classes)) * 20 + 2)

    def tables(self, count: int, generator: np.random.Generator) -> Floats:
        """Draw mean scores by class, [B, R, S, C]."""
        of_seeds, of_classes, of_both = SHARES[self.shares]
        root = self.classes**0.5
        scale_R = np.full(self.rows, of_seeds)
        scale_R[0] *= self.noisy
        seeds_BRS = generator.standard_normal((count, self.rows, self.seeds)) * scale_R[:, None]
        seeds_BRS[:, 0] -= self.collapse * of_seeds * (generator.random((count, self.seeds)) < 1 / 3)
        classes_BRC = generator.standard_normal((count, self.rows, self.classes))
        if self.skewed:
            sigma = 0.8
            centred = np.exp(sigma * classes_BRC) - np.exp(sigma**2 / 2)
            classes_BRC = centred / np.sqrt((np.exp(sigma**2) - 1) * np.exp(sigma**2))
        rest = generator.standard_normal((count, self.rows, self.seeds, self.classes))
        scores = seeds_BRS[..., None] + (of_classes * root) * classes_BRC[:, :, None] + (of_both * root) * rest
        scores[:, 0] += self.shift * np.hypot(of_seeds, of_both)
        return scores


def pairs(rows: int) -> list[tuple[int, int]]:
    """Return all pairs of rows."""
    return list(itertools.combinations(range(rows), 2))


def bonferroni(p_BP: Floats) -> Floats:
    """Return the p-values corrected for their number in each table."""
    return np.minimum(1, p_BP * p_BP.shape[1])


def holm_levels(p_BP: Floats) -> Floats:
    """Return the level at which Holm's correction tests each pair last, which is that of the interval that it implies.

    The pair of rank i is tested at 5 % / (m - i); those after the first that is not rejected, at the level of that one.
    """
    tests = p_BP.shape[1]
    ranks = np.argsort(np.argsort(p_BP, axis=1), axis=1)
    rejected = np.minimum.accumulate(np.sort(p_BP, axis=1) <= LEVEL / (tests - np.arange(tests)), axis=1).sum(1)
    return LEVEL / (tests - np.minimum(ranks, np.minimum(rejected, tests - 1)[:, None]))


def paired_t_and_bootstrap(tables: Floats, counts_C: Floats) -> Floats:
    """Return the larger p of the paired t over seeds and the normal limit of a bootstrap over classes and seeds."""
    share_C = counts_C / counts_C.sum()
    means = tables @ share_C
    seeds, found = tables.shape[2], []
    for first, second in pairs(tables.shape[1]):
        by_seed = means[:, first] - means[:, second]
        value = by_seed.mean(1)
        p_seeds = 2 * stdtr(seeds - 1, -np.abs(value) / (by_seed.std(1, ddof=1) / seeds**0.5))
        by_class = (tables[:, first] - tables[:, second]).mean(1) - value[:, None]
        variance = ((share_C * by_class) ** 2).sum(1) + by_seed.var(1) / seeds
        found.append(np.maximum(p_seeds, 2 * ndtr(-np.abs(value) / np.sqrt(variance))))
    return np.stack(found, 1)


def contrasts(
    tables: Floats, counts_C: Floats, *, seeds_lent: float, classes_lent: float, most_times: float = 1.0
) -> Floats:
    """Return p of Student's t from the class and seed variances; the other rows add the lent degrees of freedom.

    Rows of two seeds are shrunk towards the mean variance times the number of rows, at most ``most_times``.
    """
    rows, seeds = tables.shape[1:3]
    share_C = counts_C / counts_C.sum()
    centred = np.eye(len(share_C)) - np.outer(np.ones(len(share_C)), share_C)
    form = centred.T @ np.diag(share_C**2) @ centred
    unbias, class_freedom = (share_C**2).sum() / np.trace(form), np.trace(form) ** 2 / np.trace(form @ form)
    means = tables @ share_C
    own = means.var(2, ddof=1)
    typical = own.mean(1, keepdims=True) * (min(most_times, rows) if seeds == 2 else 1)
    seed_variance = np.maximum(own, (seeds_lent * typical + (seeds - 1) * own) / (seeds_lent + seeds - 1)) / seeds
    most = rows * (seeds - 1) - (seeds_lent > 0)
    seed_freedom = np.minimum(seeds - 1 + seeds_lent * np.minimum(1, np.sqrt(typical / own)), most)
    rest = tables - tables.mean(2, keepdims=True)
    rest = rest - (rest @ share_C)[..., None]
    both = unbias * ((share_C * rest) ** 2).sum((2, 3)) / (seeds - 1) / seeds
    by_class = tables.mean(2) - means.mean(2)[..., None]
    classes = np.stack(
        [unbias * ((share_C * (by_class[:, a] - by_class[:, b])) ** 2).sum(1) for a, b in pairs(rows)], 1
    )
    freedoms = np.full_like(classes, class_freedom)
    if classes_lent and rows > 2:
        common = classes.mean(1, keepdims=True)
        freedoms = class_freedom + classes_lent * np.minimum(1, np.sqrt(common / classes))
        freedoms = np.minimum(freedoms, (rows - 1) * class_freedom)
        shrunk = (classes_lent * common + class_freedom * classes) / (classes_lent + class_freedom)
        classes = np.maximum(classes, shrunk)
    found = []
    for number, (a, b) in enumerate(pairs(rows)):
        of_seeds, of_classes = seed_variance[:, a] + seed_variance[:, b], classes[:, number]
        variance = np.maximum(of_seeds, of_classes)
        variance = np.maximum(variance, of_seeds + of_classes - both[:, a] - both[:, b])
        parts = seed_variance[:, a] ** 2 / seed_freedom[:, a] + seed_variance[:, b] ** 2 / seed_freedom[:, b]
        freedom = (of_seeds + of_classes) ** 2 / (
            of_classes**2 / freedoms[:, number] + of_seeds**2 / np.minimum(of_seeds**2 / parts, most)
        )
        value = means[:, a].mean(1) - means[:, b].mean(1)
        found.append(2 * stdtr(freedom, -np.abs(value) / np.sqrt(variance)))
    return np.stack(found, 1)


TESTS: Mapping[str, Test] = {
    "paired t and bootstrap": paired_t_and_bootstrap,
    "own variances": partial(contrasts, seeds_lent=0.0, classes_lent=0.0),
    "ours": partial(contrasts, seeds_lent=4.0, classes_lent=8.0, most_times=4.0),
}
UNTIL_0_2: Test = partial(contrasts, seeds_lent=4.0, classes_lent=8.0)
"""The product's test until version 0.2: rows of two seeds are lent no more than others."""


def family_wise_error(test: Test, design: Design, tables: Floats) -> float:
    """Return the share of tables with a significant pair; a collapsing row counts only if it seems better."""
    below = bonferroni(test(tables, design.counts_C)) <= LEVEL
    if design.collapse:
        means = tables.mean((2, 3))
        wrong = [first > 0 or means[:, 0] > means[:, second] for first, second in pairs(design.rows)]
        below &= np.stack([np.broadcast_to(one, len(tables)) for one in wrong], 1)
    return float(below.any(1).mean())


def power(test: Test, design: Design, tables: Floats) -> float:
    """Return the share of significant pairs with the first row."""
    below = bonferroni(test(tables, design.counts_C)) <= LEVEL
    return float(below[:, [first == 0 for first, _ in pairs(design.rows)]].mean())


NULLS: Mapping[str, dict[str, float | bool]] = {
    "equal": {},
    "5 times the noise": {"noisy": 5.0},
    "10 times the noise": {"noisy": 10.0},
    "unequal classes": {"unequal": True},
    "skewed classes": {"skewed": True},
    "a row collapses": {"collapse": 8.0},
}
SIZES = [(rows, seeds) for seeds in (2, 3, 5) for rows in (2, 3, 6, 10)]
CLASSES = (5, 10, 20, 48, 100)
NOISY_ROWS, NOISY_CLASSES = (2, 3, 6, 14), (10, 48)


def compare_with_the_code(generator: np.random.Generator) -> None:
    """Check that the simulation equals the product's code."""
    for rows, seeds, classes in ((2, 2, 5), (3, 5, 20), (6, 3, 48)):
        design = Design(rows=rows, seeds=seeds, classes=classes, shares="both", noisy=2.0, unequal=True)
        tables, counts_C = design.tables(5, generator), design.counts_C.astype(np.int64)
        for table, expected in zip(tables, TESTS["ours"](tables, design.counts_C), strict=True):
            tested = ScoredRows({row: scores * counts_C for row, scores in enumerate(table)}, counts_C)
            found = [tested.difference(first, second).p for first, second in pairs(rows)]
            assert np.allclose(found, expected), (found, expected)


def untrained_error(design: Design, count: int, generator: np.random.Generator) -> float:
    """Return the share of tables in which some row wrongly differs from one without training, by the product's code."""
    counts_C = design.counts_C.astype(np.int64)
    deviation = SHARES[design.shares][1] * design.classes**0.5
    wrong = 0
    for table in design.tables(count, generator):
        fixed_C = deviation * generator.standard_normal(design.classes)
        sums = {row: scores * counts_C for row, scores in enumerate(table)}
        tested = ScoredRows(sums, counts_C, {-1: fixed_C * counts_C})
        found = [[tested.difference(row, -1).p for row in sums]]
        wrong += bool((bonferroni(np.array(found)) <= LEVEL).any())
    return wrong / count


def main() -> None:
    """Print the largest error of each null hypothesis over classes and shares of noise, and the power."""
    generator = np.random.default_rng(0)
    compare_with_the_code(generator)
    console = Console(width=140, highlight=False)
    layout = "{:>5} {:>6}  {:18}" + " {:>24}" * len(TESTS)
    console.print(f"Some pair wrongly called different, largest share over {CLASSES} classes and {list(SHARES)}:")
    console.print(layout.format("rows", "seeds", "null", *TESTS))
    for rows, seeds in SIZES:
        for title, null in NULLS.items():
            worst = dict.fromkeys(TESTS, 0.0)
            for classes, shares in itertools.product(CLASSES, SHARES):
                design = replace(Design(rows=rows, seeds=seeds, classes=classes, shares=shares), **null)
                tables = design.tables(TABLES, generator)
                for name, test in TESTS.items():
                    worst[name] = max(worst[name], family_wise_error(test, design, tables))
            console.print(layout.format(rows, seeds, title, *(f"{share:.3f}" for share in worst.values())))
    print_noisy(console, generator)
    print_untrained(console, generator)
    print_intervals(console, generator)
    print_equivalence(console, generator)
    console.print("Pairs found whose difference is 4 deviations of a training (48 classes, noise of the seeds):")
    for rows, seeds in SIZES:
        design = Design(rows=rows, seeds=seeds, classes=48, shift=4.0)
        tables = design.tables(POWER_TABLES, generator)
        found = (f"{power(test, design, tables):.3f}" for test in TESTS.values())
        console.print(layout.format(rows, seeds, "", *found))


def print_intervals(console: Console, generator: np.random.Generator) -> None:
    """Print the power of two corrections, and how often all intervals with the same corrections hold at once."""
    console.print("Rows 2 deviations of a training apart: pairs found, and tables in which all intervals hold (ours):")
    console.print(f"{'rows':>5} {'seeds':>6}  {'found: Holm, Bonferroni':>26} {'all hold: Holm, Bonferroni':>28}")
    for rows, seeds in SIZES:
        design = Design(rows=rows, seeds=seeds, classes=48)
        tables = design.tables(TABLES, generator)
        apart = 2 * np.hypot(SHARES["seeds"][0], SHARES["seeds"][2]) * np.arange(rows)
        true_p = TESTS["ours"](tables, design.counts_C)  # of the true differences, since a shift changes no variance
        p = TESTS["ours"](tables + apart[:, None, None], design.counts_C)
        levels = holm_levels(p), np.full_like(p, LEVEL / p.shape[1])
        found = " ".join(f"{(p <= level).mean():.3f}" for level in levels)
        held = " ".join(f"{(true_p > level).all(1).mean():.3f}" for level in levels)
        console.print(f"{rows:>5} {seeds:>6}  {found:>26} {held:>28}")


def print_noisy(console: Console, generator: np.random.Generator) -> None:
    """Print how often intervals hold if the seeds of one row vary several times as much as those of the others."""
    console.print(f"One row with k times the noise of the seeds, least or largest share over {NOISY_ROWS} rows, "
                  f"{NOISY_CLASSES} classes and {list(SHARES)}:")  # fmt: skip
    layout = "{:>5} {:>3}  {:14}" + " {:>26}" * 4
    headers = "all intervals hold", "one alone holds", "wrongly the same within 8", "found: 4 and 8 apart"
    console.print(layout.format("seeds", "k", "test", *headers))
    for seeds, times in itertools.product((2, 3, 5), (1.0, 2.0, 5.0, 10.0)):
        designs = [
            Design(rows=rows, seeds=seeds, classes=classes, shares=shares, noisy=times)
            for rows, classes, shares in itertools.product(NOISY_ROWS, NOISY_CLASSES, SHARES)
        ]
        drawn = [(design, design.tables(TABLES, generator), apart(design, 8, generator)) for design in designs]
        shifts = [Design(rows=6, seeds=seeds, classes=48, noisy=times, shift=shift) for shift in (4.0, 8.0)]
        for name, test in {"until 0.2": UNTIL_0_2, "ours": TESTS["ours"]}.items():
            if seeds > 2 and test is UNTIL_0_2:
                continue  # it is the same
            hold, alone, same = zip(*(held(test, *tables) for tables in drawn), strict=True)
            found = [power(test, design, design.tables(TABLES, generator)) for design in shifts]
            shares = f"{min(hold):.3f}", f"{min(alone):.3f}", f"{max(same):.3f}", f"{found[0]:.2f} {found[1]:.2f}"
            console.print(layout.format(seeds, f"{times:.0f}", name, *shares))


def apart(design: Design, shift: float, generator: np.random.Generator) -> Floats:
    """Draw tables whose first row is moved by ``shift`` deviations of a training."""
    return replace(design, shift=shift).tables(TABLES, generator)


def held(test: Test, design: Design, tables: Floats, moved: Floats) -> tuple[float, float, float]:
    """Return the share of tables whose intervals all hold, of pairs with the first row, and of a pair wrongly the same.

    The first row of ``moved`` is 8 deviations of a training from the others, which is the margin.
    """
    p_BP = test(tables, design.counts_C)
    of_first = [first == 0 for first, _ in pairs(design.rows)]
    margin = 8 * float(np.hypot(SHARES[design.shares][0], SHARES[design.shares][2]))
    same = within(moved, design.counts_C, margin, test).any(1).mean()
    return float((bonferroni(p_BP) > LEVEL).all(1).mean()), float((p_BP[:, of_first] > LEVEL).mean()), float(same)


def within(tables: Floats, counts_C: Floats, margin: float, test: Test = TESTS["ours"]) -> NDArray[np.bool_]:
    """Return which pairs with the first row are within ``margin``, [B, R-1]: moved to either side, they differ."""
    found = np.ones((len(tables), tables.shape[1] - 1), dtype=bool)
    for sign in (-1, 1):
        moved = tables.copy()
        moved[:, 0] += sign * margin
        p_BP = test(moved, counts_C)
        means_BR = (moved @ (counts_C / counts_C.sum())).mean(2)
        is_beyond = sign * (means_BR[:, :1] - means_BR[:, 1:]) > 0
        found &= (p_BP[:, [first == 0 for first, _ in pairs(tables.shape[1])]] <= LEVEL / p_BP.shape[1]) & is_beyond
    return found


def print_equivalence(console: Console, generator: np.random.Generator) -> None:
    """Print how often a difference of the margin is called the same, and how often equal rows are."""
    console.print("Within a margin of m deviations of a training (48 classes, noise of the seeds, ours):")
    console.print(f"{'rows':>5} {'seeds':>6}  {'m':>2} {'wrongly: some pair m apart':>28} {'found: equal pairs':>20}")
    deviation = np.hypot(SHARES["seeds"][0], SHARES["seeds"][2])
    for (rows, seeds), margin in itertools.product(SIZES, (4.0, 8.0)):
        design = Design(rows=rows, seeds=seeds, classes=48)
        tables = design.tables(TABLES, generator)
        equal = within(tables, design.counts_C, margin * deviation).mean()
        apart = replace(design, shift=margin).tables(TABLES, generator)
        wrong = within(apart, design.counts_C, margin * deviation).any(1).mean()
        console.print(f"{rows:>5} {seeds:>6}  {margin:>2.0f} {wrong:>28.3f} {equal:>20.3f}")


def print_untrained(console: Console, generator: np.random.Generator) -> None:
    """Print the largest error of tables of equal rows against a network without training."""
    console.print("Some row wrongly different from an equal network without training, largest share (ours):")
    for rows, seeds in itertools.product((1, 2, 4), (2, 3, 5)):
        found = [
            untrained_error(Design(rows=rows, seeds=seeds, classes=classes, shares=shares), UNTRAINED_TABLES, generator)
            for classes, shares in itertools.product((5, 20, 100), SHARES)
        ]
        console.print(f"{rows:>5} {seeds:>6}  {max(found):.3f}")


if __name__ == "__main__":
    main()
