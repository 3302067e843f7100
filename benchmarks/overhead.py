"""What the search costs beside the training: wall time over the ideal, for 16 trials of 8 one-second epochs.

The ideal is what the trials spent training and validating, spread evenly over the slots. Run with
``python -m benchmarks.overhead``; the numbers are those of ``summary.json``.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

TRIALS, EPOCHS, RUNS = 16, 8, 2
IMAGES_PER_CLASS = 60  # makes an epoch last about a second on one core


def search_file(name: str) -> dict[str, object]:
    """Sixteen unpruned trials of one loss on glyphs; nothing after the search."""
    return {
        "name": name,
        "dataset": {"name": "glyphs", "images_per_class": IMAGES_PER_CLASS},
        "training": {"epochs": EPOCHS},
        "losses": ["proxy_anchor"],
        "search": {"trials": TRIALS, "pruner": "none"},
        "stages": ["search"],
    }


def main() -> None:
    """Run the search a few times and print the ratios."""
    table = Table(title=f"{TRIALS} trials of {EPOCHS} epochs")
    for column in ("run", "epoch, s", "start-up, s", "search wall, s", "ideal, s", "ratio"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as scratch:
        for run in range(RUNS):
            file = Path(scratch) / "overhead.yaml"
            file.write_text(yaml.safe_dump(search_file(f"overhead-{run}")))
            command = [sys.executable, "-m", "search", "run", str(file), "--runs", f"{scratch}/runs", "--json"]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            time = json.loads(done.stdout)["time"]
            ideal = time["trial_work_s"] / time["slots"]
            values = (time["trial_work_s"] / TRIALS / EPOCHS, time["startup_s"], time["search_wall_s"], ideal)
            table.add_row(str(run), *(f"{value:.2f}" for value in values), f"{time['search_wall_s'] / ideal:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
