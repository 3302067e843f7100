"""Real Ray, real actors, trainings that sleep: which part of the slots' time is spent in epochs.

Each row is a driver process of its own on a cluster of one machine that is told it has as many CPUs as there are slots:
the whole way of ``holdout run`` with its studies in SQLite and MLflow on, and Ray Tune alone with the same actors.
``ratio`` is the wall time over the ideal, from the first epoch's start to the last one's end; ``share`` is the slots'
time that is spent in epochs, from when every slot has had its first result (64 processes take two cores minutes to
start) until the last trial was started; ``cores`` is what the driver's process takes. Ray Tune alone, which makes new
processes all the time, gets a tenth of the trials. Run with ``make bench-slots``, or with a case's name for that alone.
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

# Ray is imported where its token is set, and so later than here.
SECONDS = "HOLDOUT_BENCH_EPOCH_S"


@dataclass(frozen=True, kw_only=True)
class Case:
    """So many trials of so many epochs of so many seconds, on so many slots."""

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
    """Ratio and share, from the start and end of every epoch of each trial, the trials in the order they were made."""
    epochs = [epoch for trial in trials for epoch in trial]
    work = sum(end - start for start, end in epochs)
    wall = max(end for _, end in epochs) - min(start for start, _ in epochs)
    low, high = max(trial[0][1] for trial in trials[:slots]), max(trial[0][0] for trial in trials)
    inside = sum(max(0.0, min(end, high) - max(start, low)) for start, end in epochs)
    found = {"ratio": wall / (work / slots), "share": inside / (slots * (high - low)), "wall": wall}
    return {**found, "trials": len(trials)}


def drive_ours(case: Case, runs: Path) -> dict[str, float]:
    """A whole search by ``run_search``."""
    from rich.console import Console

    import search.engines.ray_tune
    from benchmarks.sleeping_trial import SleepingTrial
    from search.driver.start import run_search
    from search.plan.stored import stored_search
    from search.trials import epochs_of

    search.engines.ray_tune.TrainingTrial = SleepingTrial  # type: ignore[misc,assignment]
    content = {
        "name": "slots",
        "dataset": {"name": "glyphs", "num_classes": 16, "images_per_class": 4},
        "training": {"epochs": case.epochs, "batch_size": 8, "images_per_class": 2},
        "losses": ["mpa"],
        "search": {
            "trials": case.trials, "sampler": "random", "pruner": case.pruner, "max_concurrent": case.slots,
        },
        "stages": ["search"],
    }  # fmt: skip
    with (runs / "output.txt").open("w") as output:
        run_search(content, runs, Console(file=output), started=time.time())
    trials = stored_search(runs, "slots").trials("mpa")
    return measures([[(record["start"], record["end"]) for record in epochs_of(trial)] for trial in trials], case.slots)


def drive_tune(case: Case, runs: Path) -> dict[str, float]:
    """Ray Tune alone, with its own random search and its own ASHA."""
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
    """A cluster of one machine with the case's slots."""
    from support.services import ray_nodes  # the tests' own, a real one

    with ray_nodes(folder / "token", cpus=case.slots, **{SECONDS: str(case.seconds)}) as nodes:
        yield nodes.gcs_address


def in_process(*arguments: str, **environment: str) -> dict[str, float]:
    """What this file gives for ``arguments`` in a process of its own: a row, which has a driver in another one."""
    command = [sys.executable, "-m", "benchmarks.slots", *arguments]
    # Ray Tune complains of every trial whose results it was told not to write.
    quiet = {"stdout": subprocess.PIPE, "stderr": None if os.environ.get("VERBOSE") else subprocess.DEVNULL}
    done = subprocess.run(command, check=True, text=True, env={**os.environ, **environment}, **quiet)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def on_cluster(who: str, name: str) -> dict[str, float]:
    """A row: its cluster, and its driver."""
    with tempfile.TemporaryDirectory() as scratch, cluster(CASES[name], Path(scratch)) as address:
        runs = Path(scratch) / "runs"
        runs.mkdir()
        return in_process(who, name, str(runs), RAY_ADDRESS=address)


def main(names: Sequence[str]) -> None:
    """Print a row for each case, ours and Ray Tune's."""
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
