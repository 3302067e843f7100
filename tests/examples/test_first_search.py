"""The notebook: its cells run from the search to a table."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from support.services import ROOT

NOTEBOOK = ROOT / "examples" / "first_search.ipynb"
PROGRAM = """
import json, sys
if __name__ == "__main__":  # the engine's processes import this file
    space = {}
    for cell in json.loads(sys.argv[1]):
        exec(cell, space)
    print(json.dumps([list(space["table"]["loss"]), len(space["search"].trials("pnp"))]))
"""


@pytest.mark.slow
def test_the_notebook_ends_with_a_table(tmp_path: Path) -> None:
    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "outputs are not stored"
    code = [cell for cell in cells if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", [])]
    program = tmp_path / "cells.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, json.dumps(["".join(cell["source"]) for cell in code])],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    losses, trials = json.loads(done.stdout.splitlines()[-1])
    assert set(losses) == {"proxy_anchor", "pnp"}
    assert trials == 4
