"""The house's plan: imports point one way, each outside service is wrapped once, names resolve where they should."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("trainables", "spaces", "search", "holdout")  # each may import itself and those before it
# The rooms of search/, from the bottom up: each may import itself and those before it.
ROOMS = (
    "study",
    "config",
    "selection",
    "tracking",
    "plan",
    "report",
    "campaigns",
    "pages",
    "cluster",
    "stages",
    "verify",
    "cli",
)
SERVICES = {
    "ray": {"search/cluster", "trainables/trial.py"},
    "optuna": {"search", "spaces"},
    "mlflow": {"search/tracking"},
    "pydantic": {"search"},
    "typer": {"search/cli"},
}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path) -> set[str]:
    """The full names of the modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names |= {node.module}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    file = path.relative_to(ROOT)
    later = PACKAGES[PACKAGES.index(file.parts[0]) + 1 :]
    roots = {name.split(".")[0] for name in imported(path)}
    assert not roots & set(later), f"{file} imports back"
    for service, allowed in SERVICES.items():
        if service in roots:
            assert any(file.is_relative_to(entry) for entry in allowed), f"{file} imports {service}"


@pytest.mark.parametrize("path", [path for path in FILES if path.is_relative_to(ROOT / "search")], ids=str)
def test_rooms_import_downwards(path: Path) -> None:
    room, *rest = path.relative_to(ROOT / "search").parts
    if not rest:
        assert room in ("__init__.py", "__main__.py"), f"{room} is in no room"
        return
    above = {f"search.{name}" for name in ROOMS[ROOMS.index(room) + 1 :]}
    roots = {".".join(name.split(".")[:2]) for name in imported(path)}
    assert not roots & above, f"search/{room} imports upwards"


def test_a_folder_is_seen_at_a_glance() -> None:
    """About ten entries, an __init__.py and a py.typed not counted; trainables/losses has a file a loss."""
    folders = {path.parent for path in FILES}
    for folder in folders - {ROOT / "trainables" / "losses", ROOT / "trainables" / "data"}:
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(("__", ".", "py.typed"))]
        assert len(entries) <= 12, f"{folder.relative_to(ROOT)} has {len(entries)} entries"


def test_modules_do_not_import_each_other_in_circles() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    graph = {name: imported(path) & modules.keys() - {name} for name, path in modules.items()}
    while graph:
        leaves = {name for name, needs in graph.items() if not needs}
        assert leaves, f"a circle among {sorted(graph)}"
        graph = {name: needs - leaves for name, needs in graph.items() if name not in leaves}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_resolve_inside_the_repository(package: str) -> None:
    assert Path(str(importlib.import_module(package).__file__)).is_relative_to(ROOT)


def test_mlflow_is_the_library_beside_our_folder() -> None:
    """The folder mlflow/ of the repository must not hide the library, also where the repository comes first."""
    assert not list((ROOT / "mlflow").rglob("__init__.py"))
    command = [sys.executable, "-c", "from mlflow import MlflowClient; import mlflow; print(mlflow.__file__)"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    assert "site-packages" in found


def test_training_runs_without_the_services() -> None:
    """trainables/ is usable where Ray, Optuna, MLflow, pydantic and faiss are missing."""
    program = (
        "import sys\n"
        "for name in ('ray', 'optuna', 'mlflow', 'pydantic', 'faiss'): sys.modules[name] = None\n"
        "import trainables.training.train, trainables.losses, trainables.metrics, trainables.data, trainables.models\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
