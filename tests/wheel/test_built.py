"""The packages as a wheel has them: all below ``holdout``, and no import or import path names the old ones."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERY_MODULE = """
import importlib, pkgutil, sys
import holdout

for module in pkgutil.walk_packages(holdout.__path__, "holdout."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for name in holdout.__all__:
    getattr(holdout, name)

from holdout.trainables.common.part_tables import PartTable

named = [found for module in [*sys.modules.values()] for found in vars(module).values()]
tables = {id(found): found for found in named if isinstance(found, PartTable)}
for table in tables.values():
    for name in table:
        table[name]
print(len(tables), holdout.__file__)
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"search", "spaces", "trainables"}))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel is made of."""
    source, built = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for name in ("holdout", "search", "spaces", "trainables"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source / name)
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(built)]
    for _ in range(2):  # a second build replaces the first
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    return built


def test_everything_is_below_holdout(built: Path) -> None:
    assert [path.name for path in built.iterdir()] == ["holdout"]
    for name in ("search", "spaces", "trainables"):
        found = {path.relative_to(built / "holdout" / name) for path in (built / "holdout" / name).rglob("*.py")}
        assert found == {path.relative_to(ROOT / name) for path in (ROOT / name).rglob("*.py")}
    assert (built / "holdout" / "spaces" / "recipes" / "quickstart.yaml").is_file()


def test_the_code_in_a_model_of_mlflow_is_found_without_the_installation(built: Path, tmp_path: Path) -> None:
    """The zipped code of a model is all that its server has; `make test-wheel` loads the model with it."""
    environment = {**os.environ, "PYTHONPATH": str(built)}
    program = "from pathlib import Path; from holdout.search.tracking.models import zipped_code; zipped_code(Path())"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
    environment["PYTHONPATH"] = str(tmp_path / "trainables.zip")
    program = "from holdout.trainables.common import errors; print(errors.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.strip() == str(tmp_path / "trainables.zip/holdout/trainables/common/errors.py")


@pytest.mark.wheel
def test_every_module_and_every_part_is_found_there(built: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EVERY_MODULE],
        cwd=built, env={**os.environ, "PYTHONPATH": str(built)}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tables, others = done.stdout.splitlines()[-2:]
    assert int(tables.split()[0]) > 8
    assert Path(tables.split()[1]).is_relative_to(built)
    assert not others, f"imported under the old name: {others}"


def test_an_import_that_binds_the_old_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import trainables.common.files\n")
    program = (
        "import setuptools; setuptools.setup = lambda **_: None\n"
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from pathlib import Path; import setup\n"
        "path = Path('module.py'); setup.below_holdout(path.read_text(), path)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert "module.py: 'import trainables' binds a name that a wheel does not have" in done.stderr
