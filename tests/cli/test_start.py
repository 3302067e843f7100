"""No command imports a library that it does not use; each runs in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.driving import drive

from search.plan.search import OpenedSearch
from search.report.summary import write_summary

HEAVY = ("torch", "torchvision", "ray", "mlflow", "faiss", "scipy", "sklearn", "pandas", "plotly")
STUDIES = ("optuna", "sqlalchemy", "alembic")
PROGRAM = """
import json, sys
from search.cli.main import main
try:
    main()
except SystemExit as end:
    code = end.code
sys.stdout.flush()
print()
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, search_made: Callable[..., OpenedSearch]) -> Path:
    """A runs folder with a search whose first stage is done."""
    runs = tmp_path_factory.mktemp("start") / "runs"
    search = search_made(runs, losses=["pnp"], search={"trials": 2})
    drive(search)
    write_summary(search)
    return runs


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, search_made: Callable[..., OpenedSearch]) -> tuple[Path, Path]:
    """A runs folder with a finished search, and its file; its best trial is at edges of the space."""
    folder = tmp_path_factory.mktemp("finished")
    model = {"backbone": "resnet18", "embedding_dim": 8}
    space = {"pnp": {"alpha": {"low": 1.0, "high": 8.0}}}
    search = {"trials": 40, "sampler": "random", "pruner": "none"}
    opened = search_made(folder / "runs", model=model, losses=["pnp"], search=search, space=space, stages=["search"])
    drive(opened, lambda running, epoch: running.spec.hyperparameters.get("alpha", 0) / 10)
    assert write_summary(opened).losses["pnp"].diagnostics, "nothing that torch would be asked for"
    file = folder / "search.yaml"
    file.write_text(opened.config.to_yaml())
    return folder / "runs", file


def loaded(*arguments: str, code: int = 0) -> set[str]:
    """Return the top-level packages that ``holdout`` with ``arguments`` has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    ended, modules = json.loads(done.stdout.splitlines()[-1])
    assert ended == code, done.stdout + done.stderr
    return set(modules)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["-h"], 0),
        (["--version"], 0),
        (["run", "--help"], 0),
        (["query", "--help"], 0),
        (["rnu"], 2),
    ],
)
def test_help_and_a_mistyped_command_load_nothing(arguments: list[str], code: int) -> None:
    assert not loaded(*arguments, code=code) & {*HEAVY, *STUDIES, "numpy", "yaml"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["keys", "lr"], 0),
        (["losses"], 0),
        (["backbones"], 0),
        (["datasets"], 0),
        (["papers"], 0),
        (["status", "--jobs", "--address", "nonsense"], 2),
        (["run", "no-such-recipe"], 2),
    ],
)
def test_listing_what_there_is_loads_no_training_code(arguments: list[str], code: int) -> None:
    assert not loaded(*arguments, code=code) & {*HEAVY, "sqlalchemy", "alembic"}


def test_a_mistake_in_a_search_file_loads_no_training_code(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("name: wrong\ndataset: {name: glyphs}\nlosses: [mpaa]\n")
    assert not loaded("run", str(file), "--runs", str(tmp_path / "runs"), code=2) & {*HEAVY}


@pytest.mark.parametrize(
    "arguments",
    [
        ["embed", "model", "photos", "--to", "a.csv"],
        ["index", "model", "photos", "--to", __file__],
        ["query", "no", "x"],
    ],
)
def test_where_a_model_has_nothing_to_do_it_is_not_loaded(arguments: list[str]) -> None:
    assert not loaded(*arguments, code=2) & {*HEAVY, *STUDIES, "numpy"}


@pytest.mark.parametrize("arguments", [["status"], ["status", "small"]])
def test_the_progress_of_searches_is_read_without_optuna(runs: Path, arguments: list[str]) -> None:
    found = loaded(*arguments, "--runs", str(runs))
    assert "search" in found
    assert not found & {*HEAVY, "alembic", "numpy", "optuna", "sqlalchemy"}


@pytest.mark.parametrize("arguments", [["trials", "small"], ["trials", "small", "pnp", "0"], ["disk"]])
def test_looking_at_searches_loads_their_studies_and_no_more(runs: Path, arguments: list[str]) -> None:
    assert not loaded(*arguments, "--runs", str(runs)) & {*HEAVY}


def test_a_finished_search_is_printed_without_what_trains(finished: tuple[Path, Path]) -> None:
    runs, file = finished
    loaded("run", str(file), "--runs", str(runs))  # draws the report, which is absent
    assert not loaded("run", str(file), "--runs", str(runs)) & {*HEAVY} - {"scipy"}


def test_a_finished_search_that_is_extended_tries_its_network(finished: tuple[Path, Path], tmp_path: Path) -> None:
    """InvalidInput are still reported at once, before anything is trained."""
    runs, file = finished
    changed = ("--set", "search.trials=20", "--set", "training.image_size=1")
    assert "torch" in loaded("run", str(file), "--runs", str(runs), *changed, code=2)


def test_planning_and_driving_a_search_load_no_torch(search_file: Callable[..., Any], tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from search.plan.make_plan import read_plan\n"
        f"read_plan({search_file()!r}, Path({str(tmp_path)!r})).images.make()\n"
        "import search.driver.pipeline, search.engines.ray_tune, search.engines.local\n"
        "print([name for name in ('torch', 'torchvision', 'faiss', 'mlflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_comparison_computes_with_scipy_alone(runs: Path) -> None:
    assert not loaded("compare", "small", "--runs", str(runs)) & {*HEAVY} - {"scipy"}


def test_the_library_loads_nothing_before_it_is_used() -> None:
    program = "import json, sys, holdout; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in json.loads(done.stdout)} & {*HEAVY, *STUDIES, "numpy", "pydantic"}
