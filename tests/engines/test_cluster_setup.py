"""The cluster file's set-up commands, carried out in a clean folder as a new node would."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from support.services import ROOT, run

pytestmark = pytest.mark.cluster


def test_a_new_node_sets_itself_up(tmp_path: Path) -> None:
    archive = tmp_path / "files.tar"
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(tmp_path / "holdout", filter="data")
    # Another home folder, and with it no trace of this checkout; only the downloads are kept.
    cache = run(ROOT / ".venv" / "bin" / "uv", "cache", "dir").strip()
    environment = {**os.environ, "HOME": str(tmp_path), "UV_CACHE_DIR": cache}
    environment.pop("PYTHONPATH", None)
    for command in yaml.safe_load((ROOT / "ray_cluster.yaml").read_text())["setup_commands"]:
        subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=600)
    there = (
        'cd ~/holdout && . .venv/bin/activate && python -c "import search; print(search.__file__)" && holdout losses'
    )
    said = run("bash", "-c", there, env=environment)
    assert said.startswith(str(tmp_path / "holdout" / "search"))
    assert "proxy_anchor" in said
    shutil.rmtree(tmp_path / "holdout")  # gigabytes, which pytest would keep
