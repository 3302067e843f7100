"""The house's plan: imports point one way, each outside service is wrapped once, names resolve where they should."""

import ast
import importlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("trainables", "spaces", "search", "holdout")  # each may import itself and those before it
# The rooms of search/, from the bottom up: each may import itself and those before it. Others import a room's face:
# its ``__init__`` (lazy, listed in ``__init__.pyi``), or the named modules.
ROOMS: dict[str, set[str]] = {
    "config": {"names", "parts", "recipes", "search_config", "sections", "validation", "yaml_file"},
    "study": set(),
    "tracking": set(),
    "records": {"campaign", "disk", "plan", "records", "runs", "status", "work", "writable"},
    "vault": {"held", "models", "protocol"},
    "engines": {"base", "capacity"},
    "results": {"campaign", "comparison", "pairs", "rows", "summarise", "summary"},
    "show": {"campaigns", "comparison_tables", "document", "model_cards"},
    "driver": set(),
}
SHARED = {
    "difference", "addresses", "goal", "packages", "stages", "tables", "text_table", "trials",
    "trust",
}  # fmt: skip
"""Vocabulary that every room may import: modules of search/ in no room, which import none."""
MOST_PAIRS = 14
"""Pairs of rooms that know each other, of 36; the driver knows all."""
MOST_LINES = {
    "holdout": 3315, "search": 1095, "search/config": 2120, "search/driver": 4515, "search/engines": 1555,
    "search/records": 3650, "search/results": 2270, "search/show": 2605, "search/study": 1495,
    "search/tracking": 1185, "search/vault": 1085, "spaces": 1485, "trainables": 5, "trainables/common": 1735,
    "trainables/data": 3790, "trainables/inference": 1055, "trainables/losses": 1505, "trainables/metrics": 1065,
    "trainables/models": 1575, "trainables/training": 3440,
}  # fmt: skip
"""Lines of each room, and of the modules of ``search`` and ``trainables`` in none; what needs more pays by deleting."""
SERVICES = {
    "ray": {"search/engines", "holdout/cli/ray_jobs.py"},
    "optuna": {"search", "spaces", "trainables/common/ranges.py"},
    "mlflow": {"search/tracking"},
    "pydantic": {"search"},
    "typer": {"holdout/cli"},
}
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


@cache
def imports(path: Path) -> list[tuple[str, bool, bool]]:
    """Return the modules that a file imports: the full name, and True if for types only, and if in a function."""
    nodes: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text()), False, False)]
    found = []
    while nodes:
        node, typed, late = nodes.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, typed, late) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            found.append((node.module, typed, late))
        typed |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        late |= isinstance(node, ast.FunctionDef | ast.Lambda)
        if not isinstance(node, ast.expr):
            nodes += [(child, typed, late) for child in ast.iter_child_nodes(node)]
    return found


def imported(path: Path) -> set[str]:
    return {name for name, _, _ in imports(path)}


def test_imports_point_one_way() -> None:
    for path in FILES:
        file = path.relative_to(ROOT)
        later = PACKAGES[PACKAGES.index(file.parts[0]) + 1 :]
        roots = {name.split(".")[0] for name in imported(path)}
        assert not roots & set(later), f"{file} imports back"
        for service, allowed in SERVICES.items():
            if service in roots:
                assert any(file.is_relative_to(entry) for entry in allowed), f"{file} imports {service}"


def of_search() -> list[Path]:
    return [path for path in FILES if path.is_relative_to(ROOT / "search")]


def room_of(path: Path) -> str | None:
    first, *rest = path.relative_to(ROOT / "search").parts
    return first if rest else None


def test_rooms_import_the_faces_of_rooms_below() -> None:
    order = list(ROOMS)
    for path in of_search():
        room = room_of(path)
        if room is None:
            assert path.stem in {"__init__", *SHARED}, f"{path.name} is in no room"
        below = order[: order.index(room)] if room else []
        for name in sorted(imported(path)):
            package, *inner = name.split(".")
            if package != "search" or not inner or inner[0] not in ROOMS or inner[0] == room:
                continue
            assert inner[0] in below, f"{path} imports upwards: {name}"
            face = ".".join(inner[1:])
            assert not face or face in ROOMS[inner[0]], f"{path} imports {name}, which is internal"


def test_most_rooms_do_not_know_each_other() -> None:
    pairs = {
        frozenset((room, name.split(".")[1]))
        for path in of_search()
        if (room := room_of(path))
        for name in imported(path)
        if name.startswith("search.") and name.split(".")[1] in ROOMS.keys() - {room}
    }
    assert len(pairs) <= MOST_PAIRS


@pytest.mark.parametrize("room", MOST_LINES)
def test_no_room_outgrows_its_budget(room: str) -> None:
    files = (ROOT / room).glob("*.py") if room in ("search", "trainables") else (ROOT / room).rglob("*.py")
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert lines <= MOST_LINES[room], f"{room} has {lines} lines"


def test_every_room_has_a_budget() -> None:
    rooms = {str(path.relative_to(ROOT)) for path in (*(ROOT / "search").iterdir(), *(ROOT / "trainables").iterdir())}
    rooms = {room for room in rooms if (ROOT / room / "__init__.py").exists()}
    assert rooms | set(PACKAGES) == set(MOST_LINES)


def test_every_module_of_a_face_is_imported_from_another_room() -> None:
    for room, faces in ROOMS.items():
        names = {name for path in of_search() if room_of(path) != room for name in imported(path)}
        assert {f"search.{room}.{face}" for face in faces} <= names


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {
        name: {other for other, typed, _ in imports(path) if not typed} & MODULES.keys() - {name}
        for name, path in MODULES.items()
    }
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
    command = [sys.executable, "-c", "import importlib.util; print(importlib.util.find_spec('mlflow').origin)"]
    found = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    assert "site-packages" in found


def test_training_runs_without_the_services() -> None:
    """trainables/ is usable where Ray, Optuna, MLflow, pydantic and faiss are missing."""
    for name, path in MODULES.items():
        if name.startswith("trainables."):
            at_once = {imported for imported, typed, late in imports(path) if not typed and not late}
            assert not {found.partition(".")[0] for found in at_once} & {*SERVICES, "faiss"}, name
