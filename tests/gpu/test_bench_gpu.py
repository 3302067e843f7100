"""``make bench-gpu`` runs on a CPU, without the packages that a training machine lacks."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

from benchmarks.gpu import day
from benchmarks.gpu.busy import covered
from benchmarks.gpu.networks import networks
from benchmarks.gpu.sizes import ON_CPU, ON_GPU

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
    "fused optimizer steps",
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


def test_the_day_on_a_gpu_keeps_every_answer(tmp_path: Path) -> None:
    """A step that fails, and one that runs out of time, cost only their own results."""
    tables = json.dumps([{"title": "t", "columns": ["a"], "rows": [["7"]]}])
    write = f"import sys; open(sys.argv[2], 'w').write({tables!r})"
    steps = [
        day.Step(name="fails", question="1?", command=("-c", "raise SystemExit('broken')"), minutes=1, tables=False),
        day.Step(name="late", question="2?", command=("-c", "import time; time.sleep(60)"), minutes=0.03, tables=False),
        day.Step(name="well", question="3?", command=("-c", write), minutes=1),
    ]
    assert day.main(tmp_path, steps) == 1
    found = json.loads((tmp_path / day.JSON).read_text())["steps"]
    assert [step["code"] for step in found] == [1, None, 0]
    assert found[2]["tables"] == [{"title": "t", "columns": ["a"], "rows": [["7"]]}]
    page = (tmp_path / day.PAGE).read_text()
    assert all(text in page for text in ("broken", "out of time", "| 7 |", "3?"))


def test_the_day_on_a_gpu_takes_forty_minutes_at_most() -> None:
    assert sum(step.minutes for step in day.STEPS) <= 40


def test_the_papers_batches_can_be_filled() -> None:
    console = Console(record=True, width=120, file=io.StringIO())
    networks(console, replace(ON_CPU, batch=ON_GPU.batch), torch.device("cpu"))
    assert "as it is" in console.export_text()
