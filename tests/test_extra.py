"""The extra ``search``: commands that run searches name what is missing, and all others do without it."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from PIL import Image
from support.commands import holdout_without, plain, write_search
from support.kinds import Finished
from support.small_search import GLYPHS
from support.tampered import Copied

from search.packages import EXTRA, INSTALL, missing_packages

ROOT = Path(__file__).parents[1]
NAMED = ", ".join(EXTRA)


def test_the_packages_are_those_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert [Requirement(line).name for line in project["optional-dependencies"]["search"]] == list(EXTRA)
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
    for what, missing in (
        ("Running a search", NAMED),
        ("The live page", "fastapi, uvicorn"),
        ("A cluster", "ray"),
    ):
        assert f"{what} needs packages that are not installed: {missing}; run `{INSTALL}`." in said
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["bare.yaml"]


def test_the_other_commands_do_without_it(kinds: Callable[[str], Finished], tmp_path: Path) -> None:
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
