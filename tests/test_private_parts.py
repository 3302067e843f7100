"""Private parts of libraries: they exist in the installed versions, and the bounds in pyproject.toml say so."""

import ast
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from search import packages
from search.packages import TESTED, untested

ROOT = Path(__file__).parents[1]

PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "ray": {
        "search/engines/ray_tune.py": (
            "ray.tune.execution.tune_controller:RayActorManager",
            "ray.tune.execution.tune_controller:TuneController._cleanup_cached_actors",
            "ray.tune.execution.tune_controller:TuneController()._actor_manager",
            "ray.tune.execution.tune_controller:TuneController()._trial_to_actor",
            "ray.air.execution._internal:RayActorManager._actor_task_failed",
            "ray.air.execution._internal:RayActorManager()._live_actors_to_ray_actors_resources",
            "ray.tune.experiment:Trial.pickled_error_file",
            "ray._private.state:actors",
            "ray._private.state:state._connect_and_get_accessor",
            "ray._private.state:state.get_draining_nodes",
        )
    },
    "optuna": {
        "search/study/study.py": ("optuna:Study._get_trials", "optuna:Study()._directions"),
        "search/driver/verify/recomputed.py": ("optuna.distributions:BaseDistribution._contains",),
    },
    "mlflow": {
        "search/tracking/client.py": ("mlflow.store.tracking.sqlalchemy_store:SqlAlchemyStore",),
        "search/tracking/summary_runs.py": (
            "mlflow.tracking.context.registry:resolve_tags",
            "mlflow.utils.git_utils:get_git_commit",
        ),
    },
}
"""By library and by our module: ``module:name``; ``Class().name`` is an attribute that the constructor sets."""


def is_there(part: str) -> bool:
    module, _, path = part.partition(":")
    try:
        owner: Any = import_module(module)
    except ImportError:
        return False
    *owners, name = path.split(".")
    for entry in owners:
        owner = getattr(owner, entry.removesuffix("()"), None)
        if entry.endswith("()"):
            return owner is not None and name in owner.__init__.__code__.co_names
    return hasattr(owner, name)


@pytest.mark.parametrize("library", PARTS)
def test_the_installed_version_has_every_part(library: str) -> None:
    assert [part for parts in PARTS[library].values() for part in parts if not is_there(part)] == []
    assert untested(library) is None
    assert all((ROOT / user).is_file() for user in PARTS[library])


def test_every_private_name_of_optuna_is_listed() -> None:
    """A private attribute that no module of the studies defines is Optuna's."""
    paths = [*(ROOT / "search" / "study").rglob("*.py"), ROOT / "search" / "driver" / "verify" / "recomputed.py"]
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    own |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    for file, tree in trees.items():
        attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used = {name for name in attributes if name.startswith("_") and not name.endswith("__")}
        listed = {part.rpartition(".")[2] for part in PARTS["optuna"].get(file, ())}
        assert used - own <= listed, file


@pytest.mark.parametrize("library", PARTS)
def test_the_requirement_has_the_tested_bounds(library: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    dependencies = [*project["dependencies"], *project["optional-dependencies"]["search"]]
    required = {found.name: found.specifier for found in map(Requirement, dependencies)}
    assert required[library] == SpecifierSet(TESTED[library])


def test_another_version_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TESTED", {"optuna": ">=1,<2"})
    assert str(untested("optuna")).endswith("was tested with optuna>=1,<2.")
