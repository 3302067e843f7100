"""Searches in a real notebook, executed by Jupyter; and results at Python's prompt."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml
from support.made_search import made_search
from support.services import ROOT
from support.small_search import SHORTEST, small_search

import holdout

CONTENT: dict[str, Any] = {
    **SHORTEST,
    "search": {"trials": 3},
    "metrics": {"test": ["recall_at_1"]},
    "resources": {"engine": "in_process"},
}
CELLS = (
    'import holdout\nsearch = holdout.run("small.yaml", runs="runs")',
    "search",
    "search.comparison()",
    "search.summary",
    'search.trial("pnp", 0)',
    "search.report()",
    'holdout.run({"name": "x", "dataset": {"name": "glyphs"}, "losses": ["pmp"]})',
    'search.trials("pmp")',
    'search.summary.losses["pmp"]',
)


def executed(folder: Path) -> list[dict[str, Any]]:
    """Execute the notebook and return the outputs of each cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, folder / "search.ipynb")
    command = [sys.executable, "-m", "jupyter", "nbconvert", "--execute", "--allow-errors", "--to", "notebook"]
    subprocess.run(
        [*command, "--inplace", "search.ipynb"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=600,
    )
    cells: list[dict[str, Any]] = json.loads((folder / "search.ipynb").read_text())["cells"]
    return cells


@pytest.mark.slow
def test_a_search_in_a_notebook(image_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(small_search(image_folder, **CONTENT)))
    run, *shown, mistake, unknown, error = ([*cell["outputs"]] for cell in executed(tmp_path))
    assert all(output["output_type"] == "stream" for output in run), run
    said = "".join("".join(output["text"]) for output in run)
    assert "\nsmall/pnp trial 0: " in said
    assert "\x1b" not in said
    assert "default is best" in said.split("\n\n")[-3], "the run ends with the table"
    pages = [output["data"]["text/html"] for (output,) in shown]
    for page in pages[:4]:
        assert "<table" in "".join(page)
    assert "<iframe srcdoc=" in "".join(pages[4])
    assert all(len("".join(output["data"]["text/plain"]).splitlines()) < 20 for (output,) in shown)
    for (refused,), sentence in ((mistake, "losses: must be one of"), (unknown, "small has no loss 'pmp'")):
        (line,) = refused["traceback"]
        assert line.startswith(f"InvalidInput: {sentence}")
    assert (error[0]["ename"], "did you mean pnp?" in error[0]["evalue"]) == ("KeyError", True)


def test_results_are_short_tables(tmp_path: Path) -> None:
    made_search(tmp_path, "many", {f"mylab.losses:Loss{number}": (0.3, 0.3 + number / 50) for number in range(12)})
    comparison = holdout.compare("many", runs=tmp_path)
    summary = holdout.open("many", runs=tmp_path).summary
    for result in (comparison, summary):
        assert len(repr(result).splitlines()) < 20
        frame = result.to_frame()
        assert list(frame["loss"]) == [row.loss for row in result.rows]
        for (_, line), row in zip(frame.iterrows(), result.rows, strict=True):
            assert line["role"] == row.role
            for name, found in (row.test or {}).items():
                assert line[f"test_{name}"] == found.mean
        cells = re.findall(r"<td>([^<]*)</td>", result._repr_html_())
        assert len(cells) == frame.size
