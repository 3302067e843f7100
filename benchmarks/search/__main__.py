"""Replay the tables with every way to search, and print regret and epochs: ``make bench-search``.

    python -m benchmarks.search [--runs 100] [--slots 1 2 8 16] [--trials 8 16 32 64] [--tables NAME …] [--ways NAME …]
                                [--results FILE]

The first grid says what limits every way to search: the noise of a value over seeds, the correlation of validation and
worth, and what the configuration with the highest mean validation lacks.

The regret is what the chosen configuration is worth less than the best one of its table, in points of MAP@R on other
classes. Its interval is over tables as well as runs: tables are drawn with replacement, and runs of each. Every way
meets the same runs of the same tables, so that its difference from the default has an interval of its own; a way that
cannot handle the space of a table (a choice, a condition) is compared on the others. With ``--results`` each search is
appended to a file, and those that it holds are not repeated.
"""

import argparse
import multiprocessing
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import optuna
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table as Grid

from benchmarks.json_lines import append_lines, read_lines
from benchmarks.search.candidates import CANDIDATES
from benchmarks.search.peers import PEERS
from benchmarks.search.replay import Outcome, Replay, problems
from benchmarks.search.table import Table, read_table
from benchmarks.search.ways import TODAY, WAYS as OWN

TABLES = Path(__file__).parent.parent / "tables"
COMPARED = {**OWN, **PEERS}
WAYS = {**COMPARED, **CANDIDATES}
DRAWS = 2000

Floats = NDArray[np.float64]
Job = tuple[str, str, int, int, int]
"""A table, a way, slots, trials and the run."""


@cache
def table(name: str) -> Table:
    """Return a table by its name."""
    return read_table(TABLES / f"{name}.parquet")


def searched(job: Job) -> Outcome:
    """Run one search."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    name, way, slots, trials, run = job
    return Replay(table(name), WAYS[way], trials=trials, slots=slots, run=run).outcome()


def names_of_tables() -> list[str]:
    """Return the names of all tables."""
    return sorted(path.stem for path in TABLES.glob("*.parquet"))


def all_searched(jobs: Sequence[Job], results: Path | None, processes: int) -> dict[Job, Outcome]:
    """Run what ``results`` does not hold yet, and return all outcomes."""
    found: dict[Job, Outcome] = {}
    for line in read_lines(results) if results is not None else ():
        found[tuple(line["job"])] = Outcome(**line["outcome"])  # type: ignore[index]
    missing = [job for job in jobs if job not in found]
    for job, outcome in zip(missing, _mapped(missing, processes), strict=True):
        found[job] = outcome
        if results is not None:
            append_lines(results, [{"job": job, "outcome": asdict(outcome)}])
    return {job: found[job] for job in jobs}


def _mapped(jobs: Sequence[Job], processes: int) -> Iterator[Outcome]:
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
    grid = Grid(title="Tables, in points of MAP@R on other classes")
    for column in ("table", "configurations", "best", "default lacks", "noise", "correlation", "best validated lacks"):
        grid.add_column(column, justify="left" if column == "table" else "right")
    for name in names:
        of = table(name)
        grid.add_row(
            name, str(len(of.configurations)), f"{100 * of.worth.max():.1f}", f"{of.regret(0):.1f}",
            f"{of.noise:.1f}", f"{of.correlation:.2f}", f"{of.floor:.1f}",
        )  # fmt: skip
    return grid


def printed(
    outcomes: dict[Job, Outcome], names: Sequence[str], slots: int, sizes: Sequence[int], ways: Iterable[str]
) -> Grid:
    """Return the table of one number of slots."""
    grid = Grid(title=f"{slots} slots: regret in points @ epochs; below: difference from the default")
    grid.add_column("way (tables)")
    for size in sizes:
        grid.add_column(f"{size} trials", justify="right")
    for way in ways:
        able = [name for name in names if not problems(table(name), WAYS[way])]
        if not able:
            continue
        cells, differences = [], []
        for size in sizes:
            regrets, epochs = _measured(outcomes, able, way, slots, size)
            others, _ = _measured(outcomes, able, TODAY, slots, size)
            mean, half = interval(regrets, np.random.default_rng(0))
            cells.append(f"{mean:.2f} ± {half:.2f} @ {np.mean([values.mean() for values in epochs]):.0f}")
            paired = [own - other for own, other in zip(regrets, others, strict=True)]
            mean, half = interval(paired, np.random.default_rng(0))
            differences.append(f"{mean:+.2f} ± {half:.2f}")
        grid.add_row(f"{way} ({len(able)})", *cells)
        if way != TODAY:
            grid.add_row("", *differences, style="dim", end_section=True)
    return grid


def _measured(
    outcomes: dict[Job, Outcome], names: Sequence[str], way: str, slots: int, size: int
) -> tuple[list[Floats], list[Floats]]:
    """Return the regrets and the epochs of all runs on each table."""
    found = [
        [
            (table(name).regret(outcome.chosen), float(outcome.epochs))
            for job, outcome in outcomes.items()
            if job[:4] == (name, way, slots, size)
        ]
        for name in names
    ]
    values = [np.array(of_table) for of_table in found]
    return [of_table[:, 0] for of_table in values], [of_table[:, 1] for of_table in values]


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 2, 8, 16])
    parser.add_argument("--trials", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--tables", nargs="+", default=names_of_tables())
    parser.add_argument("--ways", nargs="+", default=list(COMPARED), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--processes", type=int, default=1)
    wanted = parser.parse_args(arguments)
    ways = list(dict.fromkeys((TODAY, *wanted.ways)))
    able = {way: [name for name in wanted.tables if not problems(table(name), WAYS[way])] for way in ways}
    console = Console(width=160 if not sys.stdout.isatty() else None, highlight=False)
    console.print(described(wanted.tables))
    jobs = [
        (name, way, slots, trials, run)
        for run in range(wanted.runs)
        for slots in wanted.slots
        for trials in wanted.trials
        for way in ways
        for name in able[way]
    ]
    outcomes = all_searched(jobs, wanted.results, wanted.processes)
    console.print(f"{len(wanted.tables)} tables, {wanted.runs} runs of each: {', '.join(wanted.tables)}")
    for slots in wanted.slots:
        console.print(printed(outcomes, wanted.tables, slots, wanted.trials, ways))


if __name__ == "__main__":
    main()
