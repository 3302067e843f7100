"""Packages: private parts of libraries exist in the versions that pyproject.toml allows; commands without the extra."""

import ast
import tomllib
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from PIL import Image
from support.commands import holdout_without, plain, write_search
from support.kinds import Kinds
from support.small_search import GLYPHS
from support.tampered import Copied

from search.packages import EXTRA, INSTALL, missing_packages

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "ray": {
        "search/engines/ray_session.py": ("ray._raylet:Config.initialize",),
        "search/engines/ray_tune.py": (
            "ray.tune.execution.tune_controller:RayActorManager",
            "ray.tune.execution.tune_controller:TuneController()._actor_manager",
            "ray.tune.execution.tune_controller:TuneController()._trial_to_actor",
            "ray.air.execution._internal:RayActorManager._actor_task_failed",
            "ray.air.execution._internal:RayActorManager()._live_actors_to_ray_actors_resources",
            "ray.tune.experiment:Trial.pickled_error_file",
            "ray._private.state:actors",
            "ray._private.state:state.get_draining_nodes",
        ),
    },
    "optuna": {
        "search/study/study.py": ("optuna:Study._get_trials",),
        "search/driver/verify/studies.py": ("optuna.distributions:BaseDistribution._contains",),
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
def test_the_installed_version_has_every_part_and_the_requirement_its_bounds(library: str) -> None:
    assert [part for parts in PARTS[library].values() for part in parts if not is_there(part)] == []
    assert all((ROOT / user).is_file() for user in PARTS[library])
    dependencies = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["search"]]
    required = {found.name: found.specifier for found in map(Requirement, dependencies)}
    assert required[library].contains(version(library), prereleases=True)
    assert any(bound.operator == "<" for bound in required[library])


def test_every_private_name_of_optuna_is_listed() -> None:
    """A private attribute that no module of the studies defines is Optuna's."""
    paths = [*(ROOT / "search" / "study").rglob("*.py"), ROOT / "search" / "driver" / "verify" / "studies.py"]
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


# The extra ``search``: commands that run searches name what is missing, and all others do without it.

NAMED = ", ".join(EXTRA)


def test_the_packages_are_those_of_the_extra() -> None:
    assert [Requirement(line).name for line in PROJECT["optional-dependencies"]["search"]] == list(EXTRA)
    assert missing_packages() == []


def test_a_folder_of_a_packages_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_such_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert missing_packages(["no_such_package", "mlflow"]) == ["no_such_package"]


def test_a_command_that_needs_the_extra_names_it(tmp_path: Path) -> None:
    write_search(tmp_path / "bare.yaml", {**GLYPHS, "name": "bare"})
    submit = ["submit", "bare.yaml", "--address", "http://127.0.0.1:9"]
    done = holdout_without(EXTRA, tmp_path, ["run", "bare.yaml"], ["serve"], submit, refused=2)
    assert done.returncode == 0, done.stderr
    said = plain(done.stderr)
    for what, missing in {"Running a search": NAMED, "The live page": "fastapi, uvicorn", "A cluster": "ray"}.items():
        assert f"{what} needs packages that are not installed: {missing}; run `{INSTALL}`." in said
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["bare.yaml"]


def test_the_other_commands_do_without_it(kinds: Kinds, tmp_path: Path) -> None:
    """A search that was run elsewhere is compared, verified and used; the last command needs MLflow.

    ``test_start.py`` has the report.
    """
    runs = Copied(kinds("images").runs, tmp_path / "runs").runs
    (tmp_path / "photos").mkdir()
    for shade in range(3):
        Image.new("RGB", (20, 20), (80 * shade, 0, 0)).save(tmp_path / f"photos/{shade}.png")
    model = runs / "small/models/pnp"
    done = holdout_without(
        EXTRA,
        tmp_path,
        ["doctor"],
        *([command, "small", "--runs", runs] for command in ("compare", "verify")),
        ["embed", model, "photos", "--to", "all.npz"],
        ["embed", model, "photos", "--to", "all.parquet"],
        ["index", model, "photos", "--to", "index"],
        ["query", "index", "photos/1.png", "-k", "2", "--json"],
        ["embed", "models:/birds@champion", "photos", "--to", "b.npz"],
    )
    assert done.returncode == 2, done.stderr
    assert plain(done.stderr).endswith(
        f"models:/birds@champion is a model in MLflow, which is not installed; run `{INSTALL}`, or give the model's "
        "folder."
    )
    assert '"path": "photos/1.png"' in done.stdout
    assert f"not installed: {NAMED}; models can be used" in plain(done.stdout)
    assert all((tmp_path / name).exists() for name in ("all.npz", "all.parquet", "index"))
