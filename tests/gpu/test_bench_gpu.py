"""``make bench-gpu`` runs on a CPU, without the packages that a training machine lacks."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.busy import covered

ROOT = Path(__file__).parents[2]
BARE = """
import sys
for name in ("ray", "optuna", "mlflow", "pydantic", "faiss", "upath", "sqlalchemy"):
    sys.modules[name] = None
from benchmarks.gpu.__main__ import main
main()
"""
ROWS = (
    "neighbours by torch",
    "k-means as the metrics do it",
    "tensors on the device",
    "store in main memory",
    "DataLoader, 1 workers",
    "as it is: bfloat16",
    "channels first",
)


def test_every_part_runs_on_a_bare_machine() -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", BARE], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for row in ROWS:
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"│ {row}"))
        numbers = [float(cell) for cell in line.replace("│", " ").split() if cell.replace(".", "", 1).isdigit()]
        assert numbers, line
    assert "faiss" not in done.stdout
    assert "Error" not in done.stdout


def test_the_time_in_which_a_kernel_runs_counts_once() -> None:
    assert covered([(0, 10), (5, 12), (20, 30), (22, 25)]) == 22
    assert covered([]) == 0
