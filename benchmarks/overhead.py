"""Overhead of a search: the time to its first epoch, and wall time relative to the ideal.

Searches of 16 trials with epochs of about one and two seconds on one core: one loss without pruning, and three losses
with halving. The ideal is the trials' training and validation time, divided evenly among the slots. Each row is a
separate process; the first one starts with an empty page cache if this user may drop it, and the first with each size
of the data set draws its images. Run with ``python -m benchmarks overhead``; the numbers are those of ``summary.json``.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

TRIALS, EPOCHS = 16, 8
IMAGES_PER_CLASS = {1: 60, 2: 120}  # by the approximate seconds of an epoch
ONE_LOSS: dict[str, Any] = {"losses": ["proxy_anchor"], "search": {"trials": TRIALS, "pruner": "none"}}
HALVING: dict[str, Any] = {"losses": ["proxy_anchor", "mpa", "pnp"], "search": {"trials": TRIALS, "pruner": "asha"}}
SEARCHES = {"one loss, unpruned": ONE_LOSS, "three losses, asha": HALVING}
ROWS = [(title, seconds) for seconds in IMAGES_PER_CLASS for title in SEARCHES]
DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def search_file(name: str, seconds: int, searched: dict[str, Any]) -> dict[str, Any]:
    """Return a search file with trials on glyphs and no later stage."""
    return {
        "name": name,
        "dataset": {"name": "glyphs", "images_per_class": IMAGES_PER_CLASS[seconds]},
        "training": {"epochs": EPOCHS},
        "stages": ["search"],
        **searched,
    }


def drop_caches() -> bool:
    """Drop the page cache, and return True if that is permitted."""
    os.sync()
    try:
        DROP_CACHES.write_text("3")
    except OSError:
        return False
    return True


def run(file: Path, runs: Path) -> dict[str, Any]:
    """Run a search, and return the times in its summary."""
    command = [sys.executable, "-m", "holdout", "run", str(file), "--runs", str(runs), "--json"]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{process.stderr}")
    times: dict[str, Any] = json.loads(process.stdout)["time"]
    return times


def main() -> None:
    """Run the searches and print their times."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"{TRIALS} trials a loss of {EPOCHS} epochs, {os.cpu_count()} CPU cores")
    for column in ("search", "epochs of", "libraries", "start-up, s", "search wall, s", "ideal, s", "ratio"):
        table.add_column(column, justify="left" if column in ("search", "libraries") else "right")
    with tempfile.TemporaryDirectory() as scratch:
        for number, (title, seconds) in enumerate(ROWS):
            cold = number == 0 and drop_caches()
            file = Path(scratch) / "overhead.yaml"
            file.write_text(yaml.safe_dump(search_file(f"overhead-{number}", seconds, SEARCHES[title])))
            console.print(f"{title}, epochs of {seconds} s")
            times = run(file, Path(scratch) / "runs")
            ideal = times["trial_work_s"] / times["slots"]
            values = (times["startup_s"], times["search_wall_s"], ideal)
            ratio = f"{times['search_wall_s'] / ideal:.3f}"
            where = "on disk" if cold else "in memory"
            table.add_row(title, f"{seconds} s", where, *(f"{value:.1f}" for value in values), ratio)
    console.print(table)


if __name__ == "__main__":
    main()
