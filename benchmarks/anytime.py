"""Anytime performance, in epochs, of the thesis's search and of TPE with successive halving.

The thesis searches whole grids, one hyperparameter after the other, without pruning. Each method runs five searches
with the same losses and ranges. Their incumbents are trained again with fresh seeds, the same for all, so the curves
show what the best configuration so far achieves on average, without selection bias. Run with
``python -m benchmarks.anytime IMAGES RUNS``, a folder of images (the numbers of docs/measurements.md are for Omniglot's
136 characters) and a runs folder; an interrupted benchmark is resumed.
"""

import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from optuna.trial import create_trial
from rich.console import Console
from rich.table import Table

from search.driver.make_plan import read_campaign_plans
from search.driver.pipeline import run_stages
from search.driver.stages import Order
from search.records.plan import Plan, training_of
from search.results.rows import interval
from search.results.statistics import over_seeds
from search.results.summarise import summarise
from search.results.summary import Incumbent
from search.stages import Stage
from trainables.training.spec import TrialSpec, derived_seed
from trainables.training.train import train

LOSSES = ("proxy_anchor", "multi_similarity")
SEEDS, CONFIRMATIONS, EPOCHS, BUDGET = 5, 5, 8, 240
GRID, MODEL = "coordinate", "tpe"
SHARES = (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
OBJECTIVE = "map_at_r"

Curve = NDArray[np.float64]
"""An array over the epochs of all trials, in the order of their ends: entry e is the best value after e + 1 epochs."""

Curves = dict[str, dict[str, list[Curve]]]
"""Curves by loss and sampler, one per seed."""


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """Return the mean of several searches' curves, up to the end of the shortest."""
    shortest = min(len(curve) for curve in curves)
    mean: Curve = np.mean([curve[:shortest] for curve in curves], axis=0)
    return mean


def epochs_to_reach(curve: Curve, value: float) -> int | None:
    """Return the number of epochs after which ``curve`` first reaches ``value``; None if it never does."""
    reached = np.flatnonzero(curve >= value)
    return int(reached[0]) + 1 if len(reached) else None


def cost_ratio(curve: Curve, other: Curve) -> float | None:
    """Return the epochs that ``curve`` needs to reach the final value of ``other``, divided by those of ``other``.

    Below 1, ``curve`` is cheaper. None if it never reaches the value.
    """
    needed = epochs_to_reach(curve, float(other[-1]))
    spent = epochs_to_reach(other, float(other[-1]))
    assert spent is not None
    return None if needed is None else needed / spent


def curve_of(incumbents: Sequence[Incumbent], epochs: int) -> Curve:
    """Return the curve of a search of ``epochs`` epochs; minus infinity before the first value."""
    curve: Curve = np.full(epochs, -np.inf)
    for incumbent in incumbents:
        curve[incumbent.epochs - 1 :] = incumbent.value
    return curve


def campaign_file(images: str) -> dict[str, Any]:
    """Return the campaign file: both search methods with each seed."""
    return {
        "name": "anytime",
        "study": "what a value costs",
        "base": {
            "dataset": {"name": "folder", "root": images},
            "training": {"epochs": EPOCHS, "batch_size": 120, "image_size": 20},
            "losses": list(LOSSES),
            "stages": ["search"],
        },
        "vary": {
            "sampler": {
                # The longest of Table 15's two grids takes 119 trials.
                GRID: {"search.sampler": GRID, "search.pruner": "none", "search.trials": 119},
                MODEL: {
                    "search.sampler": MODEL,
                    "search.pruner": "asha",
                    "search.trials": 999,
                    "search.epochs": BUDGET,
                },
            },
            "seed": {str(seed): {"search.seed": seed} for seed in range(SEEDS)},
        },
        "table": {"rows": ["sampler"], "metrics": ["validation"]},
    }


def confirmation(plan: Plan, loss: str, params: Mapping[str, Any], seed: int, runs: Path) -> TrialSpec:
    """Return the spec of a configuration with the ``seed``-th fresh seed, shared by all searches."""
    fresh = derived_seed("anytime", Stage.SELECT.trainings, seed)
    distributions = {name: plan.spaces[loss].parameters[name].distribution for name in params}
    trial = create_trial(value=0.0, params=dict(params), distributions=distributions, user_attrs={"seed": fresh})
    spec = training_of(plan, loss, Stage.SELECT, trial)
    return replace(spec, directory=str(runs / "confirmations" / spec.digest))


def confirmed_value(spec: TrialSpec) -> float:
    """Train a spec and return its best validation value."""
    torch.set_num_threads(1)
    return max(record["metrics"][spec.objective] for record in train(spec))


def measure(images: str, runs: Path) -> Curves:
    """Run the searches, and confirm every incumbent of each."""
    campaign, plans = read_campaign_plans(campaign_file(images), runs)
    console = Console(stderr=True)
    order = Order(console=console, stages=[Stage.SEARCH], started=time.time(), opener=campaign.name)
    found = []
    for search in run_stages(plans, order):
        for loss, entry in summarise(search).losses.items():
            trials = search.trials(loss, Stage.SEARCH)
            improved = [trials[incumbent.trial].params for incumbent in entry.anytime]
            specs = [
                [confirmation(search.plan, loss, params, seed, runs) for seed in range(CONFIRMATIONS)]
                for params in improved
            ]
            found.append((loss, search.config.search.sampler, entry, specs))
    unique = {spec.digest: spec for *_, specs in found for of_incumbent in specs for spec in of_incumbent}
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        values = dict(zip(unique, pool.map(confirmed_value, unique.values()), strict=True))
    curves: Curves = {loss: {GRID: [], MODEL: []} for loss in LOSSES}
    for loss, sampler, entry, specs in found:
        confirmed = [
            incumbent.model_copy(update={"value": statistics.fmean(values[spec.digest] for spec in of_incumbent)})
            for incumbent, of_incumbent in zip(entry.anytime, specs, strict=True)
        ]
        curves[loss][sampler].append(curve_of(confirmed, entry.epochs))
    return curves


def curves_table(curves: Curves) -> Table:
    """Return a table of the mean curves, with intervals, at some fractions of the epochs."""
    table = Table(title=f"Confirmed {OBJECTIVE} of the best so far, mean and 95 % interval of {SEEDS} searches")
    for column in ("loss", "search", "after epochs", "mean", "95 % interval"):
        table.add_column(column, justify="right")
    for loss, ways in curves.items():
        whole = min(map(len, ways[GRID]))
        for sampler, of_seeds in ways.items():
            for epochs in (round(share * whole) for share in SHARES):
                if epochs <= min(map(len, of_seeds)):
                    found = over_seeds([float(of_seed[epochs - 1]) for of_seed in of_seeds])
                    # while all searches have nothing but the default, they are equal and have no interval
                    spread = "–" if found.ci95 is None else interval(found.ci95)
                    table.add_row(loss, sampler, str(epochs), f"{found.mean:.4f}", spread)
    return table


def costs_table(curves: Curves) -> Table:
    """Return a table of the epochs after which each method's mean curve reaches the grid's final value."""
    table = Table(title=f"Epochs to the value with which {GRID} ends, of the mean curves")
    for column in ("loss", "value", "whole grid", "grid there", f"{MODEL} there", "ratio", "of the whole grid"):
        table.add_column(column, justify="right")
    for loss, ways in curves.items():
        grid, model = mean_curve(ways[GRID]), mean_curve(ways[MODEL])
        end = float(grid[-1])
        reached, ratio = epochs_to_reach(model, end), cost_ratio(model, grid)
        cells = ("never", "–", "–")
        if reached is not None:
            cells = (str(reached), f"{ratio:.2f}", f"{reached / len(grid):.2f}")
        table.add_row(loss, f"{end:.4f}", str(len(grid)), str(epochs_to_reach(grid, end)), *cells)
    return table


def main() -> None:
    """Measure, and print curves and ratios."""
    if len(sys.argv) != 3:
        sys.exit("python -m benchmarks.anytime IMAGES RUNS: a folder of images, one sub-folder a class; a runs folder.")
    curves = measure(sys.argv[1], Path(sys.argv[2]))
    Console(width=120).print(curves_table(curves), costs_table(curves))


if __name__ == "__main__":
    main()
