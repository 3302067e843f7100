"""``make gpu-day --rehearse`` runs on a CPU, without the packages that a machine with a GPU lacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu_day
from benchmarks.gpu_day import STEPS

ROOT = Path(__file__).parents[2]
BARE = """
import sys
from pathlib import Path
for name in ("ray", "optuna", "mlflow", "pydantic", "faiss", "upath", "sqlalchemy", "rich", "timm"):
    sys.modules[name] = None
from benchmarks import gpu_day
gpu_day.has = lambda package: package == "pytorch_metric_learning"
for step in gpu_day.STEPS:
    gpu_day.measure(step, gpu_day.TINY, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_every_step_runs_on_a_bare_machine(tmp_path: Path) -> None:
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BARE, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / gpu_day.ROWS).read_text().splitlines()]
    assert [step.name for step in STEPS] == list(dict.fromkeys(row["step"] for row in rows))
    for row in rows:
        measured = any(isinstance(value, float) for value in row.values())
        assert measured == (row["step"] not in ("machine", "search")), row
        assert not row.get("error"), row
    assert rows[-1]["what"] == "no search: ray, optuna, mlflow not installed"


def test_all_steps_take_twelve_minutes_at_most() -> None:
    assert sum(step.limit for step in STEPS) <= 720
