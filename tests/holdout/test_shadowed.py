"""Modules of a user that have the name of one of our packages, beside an editable installation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HOLDOUT = Path(sys.executable).with_name("holdout")
HIDES = r"Holdout is installed as editable, and .*{} hides its package {}\. Rename that, or install Holdout with"


@pytest.mark.parametrize(("name", "kind"), [("search", "module"), ("spaces", "package")])
def test_a_module_that_hides_a_package_is_a_sentence(tmp_path: Path, name: str, kind: str) -> None:
    file = tmp_path / (f"{name}.py" if kind == "module" else f"{name}/__init__.py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("lr = 1e-3")
    (tmp_path / "tune.py").write_text("import holdout\nprint(holdout.run)")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def ends(*command: str | Path, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=environment | variables, check=False
        )
        return done.returncode, done.stderr

    sentence = HIDES.format(file.name, name)
    code, told = ends(sys.executable, "tune.py")
    assert code == 1
    assert re.fullmatch(f"ImportError: {sentence} .*", told.splitlines()[-1])
    code, told = ends(HOLDOUT, "status", PYTHONPATH=str(tmp_path))
    assert code == 2
    assert re.fullmatch(f"{sentence} .*\n", told)
