"""Utilisation of the slots with a real Ray cluster and trainings that sleep.

Each row is a separate driver process on a one-machine cluster configured with as many CPUs as slots: a complete
``holdout run`` with MLflow enabled, and Ray Tune alone with the same actors. ``ratio`` is the
wall time relative to the ideal, from the start of the first epoch to the end of the last. ``share`` is the fraction of
the slots' time spent in epochs, from when every slot has had its first result (64 processes take two cores minutes to
start) until the last trial was started. ``cores`` is the CPU use of the driver. Ray Tune alone, which creates new
processes all the time, gets a tenth of the trials. Run with ``python -m benchmarks slots``,
or with the name of one case.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Ray is imported later, once its token is set.
SECONDS = "HOLDOUT_BENCH_EPOCH_S"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The numbers of trials, of their epochs, of seconds per epoch, and of slots."""

    trials: int
    epochs: int
    seconds: float
    slots: int
    pruner: str = "none"


DIGITS = {"wall": 1, "ratio": 3, "share": 3, "cores": 2}
CASES = {
    "release": Case(trials=2000, epochs=1, seconds=1.0, slots=16),  # as in Ray's own release tests
    "actors": Case(trials=1024, epochs=8, seconds=2.0, slots=64),
    "asha": Case(trials=2048, epochs=8, seconds=2.0, slots=64, pruner="asha"),
}


def measures(trials: Sequence[Sequence[tuple[float, float]]], slots: int) -> dict[str, float]:
    """Return ratio and share, given start and end of every epoch of each trial, in the order of creation."""
    epochs = [epoch for trial in trials for epoch in trial]
    work = sum(end - start for start, end in epochs)
    wall = max(end for _, end in epochs) - min(start for start, _ in epochs)
    low, high = max(trial[0][1] for trial in trials[:slots]), max(trial[0][0] for trial in trials)
    inside = sum(max(0.0, min(end, high) - max(start, low)) for start, end in epochs)
    found = {"ratio": wall / (work / slots), "share": inside / (slots * (high - low)), "wall": wall}
    return {**found, "trials": len(trials)}


def drive_ours(case: Case, runs: Path) -> dict[str, float]:
    """Run a whole search by ``run_search``."""
    from rich.console import Console

    from search.driver.start import run_search
    from search.records.records import stored_search
    from search.trials import epochs_of

    content = {
        "name": "slots",
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
        "training": {"epochs": case.epochs, "batch_size": 8, "images_per_class": 2},
        "losses": ["mpa"],
        "search": {
            "trials": case.trials, "sampler": "random", "pruner": case.pruner, "max_concurrent": case.slots,
        },
        "stages": ["search"],
        "resources": {"engine": "benchmarks.sleeping_engine:SleepingRay"},
    }  # fmt: skip
    with (runs / "output.txt").open("w") as output:
        run_search(content, runs, Console(file=output), started=time.time())
    trials = stored_search(runs, "slots").trials("mpa")
    return measures([[(record["start"], record["end"]) for record in epochs_of(trial)] for trial in trials], case.slots)


def drive_tune(case: Case, runs: Path) -> dict[str, float]:
    """Run Ray Tune alone, with its own random search and ASHA."""
    from ray import tune

    from benchmarks.sleeping_trial import PlainSleeping
    from search.engines.ray_session import ray_session

    spans: dict[str, list[tuple[float, float]]] = {}

    class Clock(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
            spans.setdefault(trial.trial_id, []).append((result["start"], result["end"]))

    scheduler = None
    if case.pruner == "asha":
        scheduler = tune.schedulers.ASHAScheduler(
            metric="value", mode="max", max_t=case.epochs, grace_period=2, reduction_factor=2
        )
    with ray_session():
        tune.Tuner(
            tune.with_resources(PlainSleeping, {"cpu": 1}),
            param_space={"x": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                num_samples=max(2 * case.slots, case.trials // 10),
                max_concurrent_trials=case.slots,
                reuse_actors=True,
                scheduler=scheduler,
            ),
            run_config=tune.RunConfig(
                storage_path=str(runs), verbose=0, stop={"training_iteration": case.epochs}, callbacks=[Clock()],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()  # fmt: skip
    return measures(list(spans.values()), case.slots)


@contextmanager
def cluster(case: Case, folder: Path) -> Iterator[str]:
    """Start a one-machine cluster with the case's slots."""
    from support.services import ray_nodes  # a real cluster, started as in the tests

    with ray_nodes(folder / "token", cpus=case.slots, **{SECONDS: str(case.seconds)}) as nodes:
        yield nodes.gcs_address


def in_process(*arguments: str, **environment: str) -> dict[str, float]:
    """Run this file with ``arguments`` in a separate process, and return its result."""
    command = [sys.executable, "-m", "benchmarks.slots", *arguments]
    # Ray Tune warns about every trial, since writing of results is disabled.
    quiet = {"stdout": subprocess.PIPE, "stderr": None if os.environ.get("VERBOSE") else subprocess.DEVNULL}
    done = subprocess.run(command, check=True, text=True, env={**os.environ, **environment}, **quiet)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def on_cluster(who: str, name: str) -> dict[str, float]:
    """Start a cluster and a driver, and return the row."""
    with tempfile.TemporaryDirectory() as scratch, cluster(CASES[name], Path(scratch)) as address:
        runs = Path(scratch) / "runs"
        runs.mkdir()
        return in_process(who, name, str(runs), RAY_ADDRESS=address)


def main(names: Sequence[str]) -> None:
    """Print a row for each case, for ours and for Ray Tune."""
    from rich.console import Console

    console = Console(width=130, highlight=False)
    layout = "{:9} {:9} {:>6} {:>5} {:>8} {:>7} {:>7} {:>7} {:>7}"
    console.print(layout.format("case", "", "trials", "slots", "epoch, s", "wall, s", "ratio", "share", "cores"))
    for name in names:
        case = CASES[name]
        for who in ("ours", "tune"):
            row = in_process("row", who, name)
            title = {"ours": "Holdout", "tune": "Ray Tune"}[who]
            found = (f"{row[key]:.{digits}f}" for key, digits in DIGITS.items())
            console.print(layout.format(name, title, int(row["trials"]), case.slots, case.seconds, *found))


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["all"]
    if what == "row":
        print(json.dumps(on_cluster(*rest)))
    elif what in ("ours", "tune"):
        began, cpu = time.time(), time.process_time()
        outcome = (drive_ours if what == "ours" else drive_tune)(CASES[rest[0]], Path(rest[1]))
        outcome["cores"] = (time.process_time() - cpu) / (time.time() - began)
        print(json.dumps(outcome))
    else:
        main(list(CASES) if what == "all" else [what, *rest])
