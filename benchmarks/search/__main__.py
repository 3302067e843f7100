"""Replay searches and their choice from the tables, and print what they gain: ``python -m benchmarks choice``.

    python -m benchmarks.search [--runs 20] [--slots 2] [--trials 8 16 32] [--tables NAME …] [--way WAY] [--ways WAY …]
                                [--processes 1]

The gain is what the chosen configuration is worth more than the default, in points of MAP@R on the test classes. Its
95 % interval is over tables as well as runs: tables are drawn with replacement, and runs of each. Every rule chooses
from the same searches, and every way to search meets the same runs of the same tables.

The first grid describes the tables: the deviation of a test value over seeds, the rank correlation of a
configuration's worth with its value on the fixed split and on halves, and what the configuration with the highest
value on the fixed split gains. The second compares rules of choice, after searches of 16 trials by one way.
The third compares ways to search, by the default rule, or that of searches which half of the classes validates. The
fourth compares rules of recommendation (:mod:`benchmarks.search.recommendations`).
"""

import argparse
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import optuna
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from benchmarks.search.recommendations import BETTER_BY, read_networks, recommendations
from benchmarks.search.replay import Outcome, Replay
from benchmarks.search.table import Table, read_table
from benchmarks.search.ways import DEFAULT_WAY, HALF_WAY, PRODUCT, RULES, WAYS

TABLES = Path(__file__).parent.parent / "tables"
NETWORKS = TABLES / "networks.json"
DRAWS = 2000
COMPARED = 16
"""The trials of the searches after which rules are compared."""

Floats = NDArray[np.float64]
Job = tuple[str, str, int, int, int]
"""A table, a way, slots, trials and the run."""
Runs = list[list[Outcome]]
"""The outcomes of the runs on each table."""


@cache
def table(name: str) -> Table:
    """Return a table by its name."""
    return read_table(TABLES / f"{name}.parquet")


def searched(job: Job) -> Outcome:
    """Run one search, and choose by every rule."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    name, way, slots, trials, run = job
    return Replay(table(name), WAYS[way], trials=trials, slots=slots, run=run).outcome(RULES.values())


def all_searched(jobs: Sequence[Job], processes: int) -> Iterator[Outcome]:
    """Yield the outcome of each job."""
    if processes == 1:
        yield from map(searched, jobs)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(searched, jobs, chunksize=4)


def interval(values_TR: Sequence[Floats], generator: np.random.Generator) -> tuple[float, float]:
    """Return the mean over tables of the means over runs, and half the width of its 95 % interval.

    The interval is that of a bootstrap that draws tables, and runs of each.
    """
    tables = len(values_TR)
    # The means of runs drawn anew for each place of each draw, [T, DRAWS, T].
    means = np.stack(
        [values[generator.integers(len(values), size=(DRAWS, tables, len(values)))].mean(-1) for values in values_TR]
    )
    drawn = generator.integers(tables, size=(DRAWS, tables))
    of_draws = means[drawn, np.arange(DRAWS)[:, None], np.arange(tables)].mean(1)
    low, high = np.quantile(of_draws, (0.025, 0.975))
    return float(np.mean([values.mean() for values in values_TR])), float(high - low) / 2


def described(names: Sequence[str]) -> Grid:
    """Return the properties of the tables, which limit every way to search."""
    grid = Grid(title="Tables, in points of MAP@R on the test classes")
    for column in ("table", "default", "best", "noise", "rank, split", "rank, halves", "best on split gains"):
        grid.add_column(column, justify="left" if column == "table" else "right")
    for name in names:
        of = table(name)
        grid.add_row(
            name, f"{of.worth[0]:.1f}", f"{of.worth.max():.1f}", f"{of.noise:.1f}",
            f"{of.correlation(of.validated.mean(1)):.2f}", f"{of.correlation(of.halves.mean(1)):.2f}",
            f"{of.gain(int(of.validated.mean(1).argmax())):+.1f}",
        )  # fmt: skip
    return grid


def gains(names: Sequence[str], found: Runs, rule: int) -> list[Floats]:
    """Return the gains of the runs on each table by the rule of this number."""
    return [
        np.array([table(name).gain(outcome.choices[rule].chosen) for outcome in outcomes])
        for name, outcomes in zip(names, found, strict=True)
    ]


def attainable(names: Sequence[str], found: Runs, of: Callable[[Table, Sequence[int]], float]) -> list[Floats]:
    """Return what the best configurations gain that the searches tried."""
    return [
        np.array([of(table(name), outcome.tried) for outcome in outcomes])
        for name, outcomes in zip(names, found, strict=True)
    ]


def mean_text(values_TR: Sequence[Floats]) -> str:
    """Return the mean with its interval."""
    mean, half = interval(values_TR, np.random.default_rng(0))
    return f"{mean:+.2f} ± {half:.2f}"


def of_rules(names: Sequence[str], found: Runs) -> Grid:
    """Return the comparison of the rules."""
    every = [outcome for outcomes in found for outcome in outcomes]
    searching = np.mean([outcome.epochs for outcome in every])
    best = attainable(names, found, Table.best)
    grid = Grid(title=f"Rules, {len(every)} searches of {COMPARED} trials, {searching:.0f} epochs each")
    for column in ("rule", "gain", "lose > 1", "worst", "of attainable", "epochs of confirmation"):
        grid.add_column(column, justify="left" if column == "rule" else "right")
    for number, rule in enumerate(RULES):
        gained = gains(names, found, number)
        flat = np.concatenate(gained)
        confirming = np.mean([outcome.choices[number].epochs for outcome in every])
        grid.add_row(
            rule, mean_text(gained), f"{(flat < -1).mean():.1%}", f"{flat.min():+.1f}",
            f"{flat.mean() / np.concatenate(best).mean():.0%}", f"{confirming:.0f}",
            style="bold" if rule == PRODUCT else None,
        )  # fmt: skip
    grid.add_row("the best that was tried (too much)", mean_text(best), style="dim")
    found_by_one = attainable(names, found, Table.best_of_one_seed)
    grid.add_row("the best by one seed, by the other (too little)", mean_text(found_by_one), style="dim")
    return grid


def of_ways(names: Sequence[str], found: dict[tuple[str, int], Runs], sizes: Sequence[int]) -> Grid:
    """Return the comparison of the ways to search."""
    grid = Grid(
        title="Ways to search: gain (attainable) @ epochs, search + confirmation; below: difference from the default"
    )
    grid.add_column("way")
    for size in sizes:
        grid.add_column(f"{size} trials", justify="right")
    for way in dict.fromkeys(way for way, _ in found):
        cells, differences = [], []
        for size in sizes:
            runs = found[way, size]
            rule = list(RULES).index(WAYS[way].rule)
            gained, best = gains(names, runs, rule), attainable(names, runs, Table.best)
            every = [outcome for outcomes in runs for outcome in outcomes]
            searching = np.mean([outcome.epochs for outcome in every])
            confirming = np.mean([outcome.choices[rule].epochs for outcome in every])
            flat = np.concatenate(gained)
            cells.append(
                f"{mean_text(gained)} ({np.concatenate(best).mean():.2f}) @ {searching:.0f} + {confirming:.0f}; "
                f"{(flat < -1).mean():.1%} lose > 1"
            )
            usual = gains(names, found[DEFAULT_WAY, size], list(RULES).index(PRODUCT))
            differences.append(mean_text([own - other for own, other in zip(gained, usual, strict=True)]))
        grid.add_row(way, *cells)
        if way != DEFAULT_WAY:
            grid.add_row("", *differences, style="dim", end_section=True)
    return grid


def of_recommendations(names: Sequence[str], found: dict[tuple[str, int], Runs]) -> Grid:
    """Return the comparison of the rules of recommendation, after searches by the default way and on halves."""
    networks = read_networks(NETWORKS)
    divisions = {name: name.split("-", 1)[1] for name in names}
    grid = Grid(title=f"Recommendations, {len({*divisions.values()} & {*networks})} divisions")
    for column in ("recommended", "after", "regret", "below a network by 1"):
        grid.add_column(column, justify="left" if column in ("recommended", "after") else "right")
    for way in (DEFAULT_WAY, HALF_WAY):
        rule, runs = list(RULES).index(WAYS[way].rule), found[way, COMPARED]
        for words, better_by in BETTER_BY.items():
            regrets, harmed = [], []
            for division in sorted({*divisions.values()} & {*networks}):
                places = [place for place, name in enumerate(names) if divisions[name] == division]
                of = [
                    entry
                    for run in range(len(runs[0]))
                    for entry in recommendations(
                        {
                            names[place]: (table(names[place]), runs[place][run].choices[rule].chosen)
                            for place in places
                        },
                        networks[division],
                        run % 2 if WAYS[way].on == "half" else None,
                        better_by,
                    )
                ]
                regrets.append(np.array([entry.regret for entry in of]))
                harmed += [entry.above_network < -1 for entry in of]
            grid.add_row(words, way, mean_text(regrets), f"{np.mean(harmed):.1%}")
    return grid


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and print."""
    names = sorted(path.stem for path in TABLES.glob("*.parquet"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--trials", type=int, nargs="+", default=[8, COMPARED, 32])
    parser.add_argument("--tables", nargs="+", default=names, choices=names, metavar="NAME")
    parser.add_argument(
        "--way", default=DEFAULT_WAY, choices=WAYS, metavar="WAY", help="after which rules are compared"
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY", help="that are compared")
    parser.add_argument("--processes", type=int, default=1)
    wanted = parser.parse_args(arguments)
    console = Console(width=160 if not sys.stdout.isatty() else None, highlight=False)
    console.print(described(wanted.tables))
    ways = list(dict.fromkeys((DEFAULT_WAY, HALF_WAY, wanted.way, *wanted.ways)))
    sizes = sorted({*wanted.trials, COMPARED})
    jobs = [
        (name, way, wanted.slots, size, run)
        for way in ways
        for size in sizes
        for name in wanted.tables
        for run in range(wanted.runs)
    ]
    outcomes = dict(zip(jobs, all_searched(jobs, wanted.processes), strict=True))
    found = {
        (way, size): [
            [outcomes[name, way, wanted.slots, size, run] for run in range(wanted.runs)] for name in wanted.tables
        ]
        for way in ways
        for size in sizes
    }
    console.print(f"{len(wanted.tables)} tables, {wanted.runs} runs of each, {wanted.slots} slots")
    console.print(of_rules(wanted.tables, found[wanted.way, COMPARED]))
    console.print(of_ways(wanted.tables, found, sizes))
    console.print(of_recommendations(wanted.tables, found))


if __name__ == "__main__":
    main()
